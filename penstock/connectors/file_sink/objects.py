"""A prefix of an object store: S3 and what speaks like it, Google Cloud Storage, Azure."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store, from_url

from penstock.connectors.file_sink.places import OWN, Found, Outrun
from penstock.errors import PenstockError, SettingsError, SinkFailed
from penstock.folders.objects import ATTEMPTS, ObjectFolder
from penstock.masking import masked_text

_AT_ONCE = 16
# A request that hangs is given up after the first, all tries of it together after the second.
_REQUEST, _PATIENCE = timedelta(seconds=30), timedelta(seconds=90)
T = TypeVar("T")


class ObjectPlace:
    """Staged objects are copied by the server and removed; the ledger is replaced by a conditional put."""

    def __init__(self, url: str) -> None:
        self.url = url
        # The keys travel to tasks on other machines.
        self._config = dict(ObjectFolder.at(url).config)

    def check(self) -> None:
        """Raise a SettingsError if objects cannot be listed and written."""
        try:
            # Listing first: some servers make a bucket that is missing when something is put into it.
            next(iter(self._store.list(OWN)), None)
            self._store.put(f"{OWN}/ready", b"")
        except (BaseError, FileNotFoundError) as error:
            text, hint = self._words(error)
            raise SettingsError(text, hint=hint) from error

    def scratch(self, folder: str) -> str:
        """Return a path in the system's folder for temporary files."""
        handle, path = tempfile.mkstemp(prefix="penstock-")
        os.close(handle)
        return path

    def put(self, path: str, name: str) -> None:
        """Upload a scratch file and remove it here."""
        try:
            with open(path, "rb") as file:
                self._store.put(name, file)
        finally:
            os.remove(path)

    @contextmanager
    def fetched(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Lend copies of the objects."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            paths = [os.path.join(folder, str(number)) for number in range(len(names))]
            self._each(lambda pair: self._download(*pair), zip(names, paths, strict=True))
            yield paths

    def harden(self, names: Iterable[str]) -> None:
        """Make sure that they are there; what the store has taken is durable."""
        self._each(self._store.head, names)

    def show(self, moves: Sequence[tuple[str, str]]) -> None:
        """Copy objects within the store, and only then remove what was copied."""

        def copy(move: tuple[str, str]) -> None:
            with suppress(FileNotFoundError):
                self._store.copy(*move)

        self._each(copy, moves)
        self.remove(staged for staged, _ in moves)

    def settle(self, names: Iterable[str]) -> None:
        """Do nothing: what the store has taken is durable."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, those that are there."""
        gone = list(names)
        try:
            self._store.delete(gone)
        except FileNotFoundError:
            # Not every store takes it lightly, and then some of the others may still be there.
            self._each(self._remove, gone)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._store.delete(name)

    def files(self, below: str) -> dict[str, Found]:
        """Return all objects below a prefix."""
        now = datetime.now(UTC)
        metas = (meta for chunk in self._store.list(below or None) for meta in chunk)
        return {
            meta["path"]: Found(meta["size"], (now - meta["last_modified"]).total_seconds())
            for meta in metas
            if below or not meta["path"].startswith(f"{OWN}/")
        }

    def read(self, name: str) -> tuple[bytes, dict[str, str]] | None:
        """Return a small object and its tag."""
        try:
            found = self._store.get(name)
        except FileNotFoundError:
            return None
        return bytes(found.bytes()), _version(found.meta)

    def swap(self, name: str, data: bytes, version: dict[str, str] | None) -> dict[str, str]:
        """Put a small object if it is still of this tag."""
        mode: Any = version or "create"
        try:
            return _version(self._store.put(name, data, mode=mode))
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
            # A put that was taken and not answered is tried again, and then meets itself.
            found = self.read(name)
            if found and found[0] == data:
                return found[1]
            raise Outrun(name) from error

    @contextmanager
    def failures(self, node: str) -> Iterator[None]:
        """Turn errors of the store into errors of the node."""
        try:
            yield
        except PenstockError:
            raise
        except (BaseError, OSError) as error:
            text, hint = self._words(error)
            raise SinkFailed(text, node=node, hint=hint, transient=_passes(error)) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_config": self._config}

    @cached_property
    def _store(self) -> Any:
        config = dict(self._config)
        retries: Any = {"max_retries": int(config.pop("aws_max_attempts", ATTEMPTS)) - 1, "retry_timeout": _PATIENCE}
        options: Any = {"allow_http": config.get("aws_endpoint_url", "").startswith("http://"), "timeout": _REQUEST}
        return from_url(self.url, config=config, client_options=options, retry_config=retries)  # type: ignore[call-overload]

    def _download(self, name: str, path: str) -> None:
        with open(path, "wb") as file:
            for chunk in self._store.get(name).stream():
                file.write(chunk)

    def _each(self, work: Callable[[T], object], items: Iterable[T]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(work, items):
                pass

    def _words(self, error: Exception) -> tuple[str, str]:
        """Return what went wrong, and what to do."""
        said = re.search(r"<Message>(.*?)</Message>", str(error), re.DOTALL)
        why = masked_text(said.group(1) if said else str(error)).split("\n")[0]
        bucket = self.url.split("/")[2]
        if "NoSuchBucket" in str(error):
            return f"there is no bucket {bucket!r} for {self.url}", "make the bucket, or correct its name"
        if _forbidden(error):
            return f"{self.url} may not be written: {why}", f"check {_keys(self._store)}, and what they may do"
        if isinstance(error, FileNotFoundError):
            return f"an object of {self.url} is gone: {why}", f"leave {self.url}/{OWN} alone while a job runs"
        return f"{self.url} cannot be written: {why}", f"check that the store answers, and {_keys(self._store)}"


def _passes(error: Exception) -> bool:
    return not (_forbidden(error) or isinstance(error, FileNotFoundError))


def _forbidden(error: Exception) -> bool:
    # A listing that is refused comes as an error of no special kind.
    return isinstance(error, PermissionDeniedError | UnauthenticatedError) or "403 Forbidden" in str(error)


def _keys(store: object) -> str:
    if isinstance(store, S3Store):
        return "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"
    return "the credentials in the environment"


def _version(meta: Any) -> dict[str, str]:
    return {part: meta[part] for part in ("e_tag", "version") if meta.get(part)}
