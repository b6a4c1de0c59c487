"""The webhook sink: posts rows to a URL."""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

import pyarrow as pa

from penstock.connectors.formats.json.writer import json_documents
from penstock.contracts import Epoch, Sink
from penstock.durations import Span, micros
from penstock.errors import BadValue, PenstockError, SettingsError, SinkFailed, choices
from penstock.masking import HIDDEN, is_secret_header, masked, reached_by, without
from penstock.settings import Settings, unread

if TYPE_CHECKING:
    from typing import Self

_PASSING = (408, 425, 429)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_SHOWN = 200


class WebhookSink(Sink):
    """Posts each epoch's rows as JSON arrays of at most `rows` documents, with a header `Idempotency-Key`.

    Guarantee: at least once. The driver posts an epoch when all its tasks are done, and the epoch is over when each
    post was answered by 2xx. A replayed epoch is posted again; the same rows then come in the same posts under the
    same keys, so that a receiver that knows a key can drop what it has.
    """

    guarantee = "at_least_once"
    updates = True

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        rows: int = 500,
        timeout: Span = "10s",
        retries: int = 5,
    ) -> None:
        if rows < 1 or retries < 0:
            message = f"webhook: invalid rows={rows}, retries={retries}"
            raise BadValue(message, hint="rows must be at least 1, retries at least 0")
        _refuse_url(url)
        self._given, self._url = url, url
        self._headers = dict(headers or {})
        self._rows, self._retries = rows, retries
        self._timeout_us = micros(timeout, "timeout")
        self.name = _name(url)

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords and secret headers."""
        return {
            "kind": "webhook",
            "url": masked(self._given),
            "headers": {name: HIDDEN if is_secret_header(name) else value for name, value in self._headers.items()},
            "rows": self._rows,
            "timeout": f"{self._timeout_us // 1000}ms",
            "retries": self._retries,
        }

    def private_spec(self) -> object:
        """Return the URL and the headers as given."""
        return self._given, self._headers

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        return cls(*(spec[name] for name in ("url", "headers", "rows", "timeout", "retries")))

    @property
    def guarantee_reason(self) -> str:
        """How the sink achieves its guarantee."""
        return "a replayed epoch is posted again, under the same idempotency keys"

    def describe_target(self) -> str:
        """Return the host only: the path of a webhook URL is often a secret."""
        address = urlsplit(self._given)
        return f"webhook {reached_by(f'{address.scheme}://{address.hostname}' if address.hostname else self._given)}"

    def configure(self, job: str, settings: Settings) -> None:
        """Resolve a named connection."""
        self._url = settings.connections.get(self._given, self._given)
        if "://" not in self._url:
            message = f"unknown connection '{masked(self._given)}'"
            hint = unread(settings, "connections", self._given)
            hint = hint or choices("connections", settings.connections, self._given)
            raise SettingsError(message, hint=f"{hint}\n  or write https://host/path")

    def check(self) -> None:
        """Raise a SettingsError if the URL is invalid."""
        address = urlsplit(self._url)
        if address.scheme not in ("http", "https") or not address.hostname:
            message = f"webhook: {masked(self._url)!r} is not a web address"
            raise SettingsError(message, hint="write https://host/path")

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[str]:
        """Return the rows as JSON: nothing is posted before the epoch is complete."""
        return [row for batch in batches if batch.num_rows for row in json_documents(batch).to_pylist()]

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Post the rows in a deterministic order: a replay may distribute them to tasks differently."""
        rows = iter(sorted(row for token in tokens for row in token))
        with _Poster(urlsplit(self._url), self._headers, self._timeout_us / 1e6) as poster:
            for number, chunk in enumerate(_chunks(rows, self._rows)):
                body = f"[{', '.join(chunk)}]".encode()
                # With the digest a receiver does not drop rows that it has not seen, if a replay differs.
                key = f"{epoch.id}-{number}-{hashlib.sha256(body).hexdigest()[:16]}"
                self._post(poster, body, key)

    def _post(self, poster: _Poster, body: bytes, key: str) -> None:
        for tried in range(self._retries + 1):
            try:
                poster.post(body, key)
                return
            except SinkFailed as error:
                if not error.transient or tried == self._retries:
                    raise
            time.sleep(min(_FIRST_PAUSE_S * 2**tried, _LONGEST_PAUSE_S))


class _Poster:
    """One connection to the receiver, recreated when it breaks."""

    def __init__(self, url: SplitResult, headers: Mapping[str, str], timeout: float) -> None:
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        assert url.hostname is not None
        self._connection = kind(url.hostname, url.port, timeout=timeout)
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._host = masked(url.geturl())
        self._secrets = [url.password, *(value for name, value in headers.items() if is_secret_header(name))]
        self._headers = {"Content-Type": "application/json", **_login(url), **headers}

    def __enter__(self) -> _Poster:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def post(self, body: bytes, key: str) -> None:
        """Post once; a status other than 2xx is an error, transient if a retry can succeed."""
        try:
            self._connection.request("POST", self._path, body, self._headers | {"Idempotency-Key": key})
            answer = self._connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            message = f"{self._host} does not answer: {error or type(error).__name__}"
            raise SinkFailed(message, hint="check that the receiver is running", transient=True) from error
        if not 200 <= answer.status < 300:
            raise self._refused(answer, said)

    def _refused(self, answer: http.client.HTTPResponse, said: bytes) -> PenstockError:
        text = without(said[:_SHOWN].decode(errors="replace").strip(), self._secrets)
        message = f"{self._host} answers {answer.status} {answer.reason}{f': {text}' if text else ''}"
        if answer.status >= 500 or answer.status in _PASSING:
            return SinkFailed(message, hint="check the receiver's log, then run the job again", transient=True)
        if answer.status < 400:
            where = masked(answer.getheader("Location") or "elsewhere")
            return SinkFailed(message, hint=f"redirects of a POST are not followed; use the new URL: {where}")
        hints = {
            401: "check user and password of the URL, or headers=",
            403: "check user and password of the URL, or headers=",
            404: "check the path of the URL",
            413: "post fewer rows at once: webhook(url, rows=...)",
        }
        return SinkFailed(message, hint=hints.get(answer.status, "fix the rows or the receiver, and run the job again"))


def _chunks(rows: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(islice(rows, size)):
        yield chunk


def _login(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    login = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _refuse_url(url: object) -> None:
    """Raise BadValue if it is neither a URL nor a name in the settings."""
    address = urlsplit(url) if isinstance(url, str) else None
    named = isinstance(url, str) and "://" not in url and re.fullmatch(r"[\w.-]+", url)
    if not named and (address is None or address.scheme not in ("http", "https") or not address.hostname):
        message = f"{masked(url) if isinstance(url, str) else url!r} is not a web address"
        raise BadValue(message, node="webhook", hint="write https://host/path, or a name of [settings.connections]")


def _name(url: str) -> str:
    address = urlsplit(masked(url))
    return f"{address.hostname}{address.path}".rstrip("/") if address.hostname else url
