"""HTTP requests to a job manager: repeated where that is safe, problems raised as errors."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from penstock.control.client.problems import error_of
from penstock.control.client.responses import json_of
from penstock.errors import NoJobManager, PenstockError, SettingsError

DEFAULT = "http://127.0.0.1:8081"
API = "/api/v1"
ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0
FIRST_DELAY_SECONDS = 0.2
Params = Mapping[str, Any]


class Connection:
    """Requests to one job manager.

    Invariant: a request that changes something is sent again only if it is marked as repeatable, because its
    effect is the same however often it arrives.
    """

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.server = check_address(server)
        self._sleep = sleep
        self._reached = False
        headers = {"authorization": f"Bearer {token}"} if token else {}
        url = httpx.URL(self.server)
        # A proxy cannot reach this machine's own loopback.
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=not is_loopback(url.host))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, params: Params | None = None) -> Any:
        """Return the JSON of a resource."""
        return json_of(self.request("GET", path, repeatable=True, params=_given(params)))

    def request(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool = False,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **content: Any,
    ) -> httpx.Response:
        """Send a request and return its response; raise the error that the response stands for."""
        limit = self._http.timeout if timeout is None else httpx.Timeout(timeout)
        delay = FIRST_DELAY_SECONDS
        for left in reversed(range(ATTEMPTS)):
            try:
                response = self._http.request(method, API + path, headers=headers, timeout=limit, **content)
            except httpx.TransportError as error:
                if not left or not self._may_repeat(error, repeatable):
                    raise self._lost(error) from error
            else:
                self._reached = True
                if response.is_success:
                    return response
                if not left or not repeatable or response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    raise self._refusal(response)
                delay = _retry_after(response, delay)
            self._sleep(delay)
            delay *= 2
        raise AssertionError  # the last attempt returns or raises

    @contextmanager
    def lines(self, path: str, params: Params | None = None) -> Iterator[Iterator[str]]:
        """Open a resource that goes on, such as a log that is followed; the lines end with it."""
        # The server may have nothing to send for as long as nothing happens.
        limit = httpx.Timeout(TIMEOUT_SECONDS, read=None)
        try:
            with self._http.stream("GET", API + path, params=_given(params), timeout=limit) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response)
                self._reached = True
                yield response.iter_lines()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _refusal(self, response: httpx.Response) -> PenstockError:
        error = error_of(response)
        if response.status_code == httpx.codes.UNAUTHORIZED and "authorization" not in self._http.headers:
            error.hint = (
                "set PENSTOCK_TOKEN, or pass --token; the first token is created on the machine of the job manager: "
                "penstock token create NAME --role admin --data DIR"
            )
        return error

    def _may_repeat(self, error: httpx.TransportError, repeatable: bool) -> bool:
        # A server that was never there is reported at once; one that was may be restarting.
        never_sent = isinstance(error, httpx.ConnectError)
        return self._reached and (repeatable or never_sent)

    def _lost(self, error: httpx.TransportError) -> NoJobManager:
        if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
            message = f"the job manager at {self.server} did not answer in time"
            return NoJobManager(message, hint="penstock jobs shows whether the request was carried out", transient=True)
        if self._reached:
            message = f"the job manager at {self.server} is gone: {error}"
            hint = "its jobs go on; the next manager on the same data adopts them: penstock up"
            return NoJobManager(message, hint=hint, transient=True)
        message = f"no job manager at {self.server}"
        hint = "start one with `penstock up`, or give its address: --server URL, or PENSTOCK_SERVER"
        return NoJobManager(message, hint=hint, transient=True)


def check_address(server: str) -> str:
    """Return the address of a job manager as a URL without a path; a host and a port get http://.

    >>> check_address("127.0.0.1:8081"), check_address("https://jobs.example.com/")
    ('http://127.0.0.1:8081', 'https://jobs.example.com')
    """
    text = server if "://" in server else f"http://{server}"
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        message = f"{server!r} is not the address of a job manager: {error}"
        raise SettingsError(message, hint=f"as in {DEFAULT}") from error
    if url.scheme not in ("http", "https") or not url.host:
        message = f"{server!r} is not the address of a job manager"
        raise SettingsError(message, hint=f"as in {DEFAULT}")
    if url.userinfo:
        message = "the address of a job manager has no user or password"
        raise SettingsError(message, hint="pass a token: PENSTOCK_TOKEN")
    return str(url.copy_with(path="/", query=None, fragment=None)).rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("jobs.example.com")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _given(params: Params | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _retry_after(response: httpx.Response, otherwise: float) -> float:
    text = response.headers.get("retry-after", "")
    return min(float(text), 5.0) if text.isdecimal() else otherwise
