"""The file store in an object store: S3 and compatible services, Google Cloud Storage, Azure."""

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

from penstock.errors import PenstockError, SettingsError, SinkFailed
from penstock.masking import masked_text
from penstock.storage.object_folders import ATTEMPTS, ObjectFolder
from penstock.storage.stores import INTERNAL_FOLDER, StoredFile, VersionConflict

_AT_ONCE = 16
# Timeouts of one request, and of all its retries together.
_REQUEST, _PATIENCE = timedelta(seconds=30), timedelta(seconds=90)
T = TypeVar("T")


class ObjectStore:
    """A prefix of a bucket: staged objects are copied by the server, small files are replaced by conditional puts."""

    def __init__(self, url: str) -> None:
        self.url = url
        # The credentials are sent to tasks on other machines.
        self._config = dict(ObjectFolder.at(url).config)

    def check(self) -> None:
        """Raise a SettingsError if objects cannot be listed and written."""
        try:
            # List first: some servers create a missing bucket on the first put.
            next(iter(self._store.list(INTERNAL_FOLDER)), None)
            self._store.put(f"{INTERNAL_FOLDER}/ready", b"")
        except (BaseError, FileNotFoundError) as error:
            text, hint = self._explain(error)
            raise SettingsError(text, hint=hint) from error

    def scratch(self, folder: str) -> str:
        """Return a path in the system's temporary folder."""
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
    def local_copies(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Lend copies of the objects."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            paths = [os.path.join(folder, str(number)) for number in range(len(names))]
            self._each(lambda pair: self._download(*pair), zip(names, paths, strict=True))
            yield paths

    def fsync(self, names: Iterable[str]) -> None:
        """Check that objects exist; what the store has acknowledged is durable."""
        self._each(self._store.head, names)

    def publish(self, moves: Sequence[tuple[str, str]]) -> None:
        """Copy objects within the store, and only then remove what was copied."""

        def copy(move: tuple[str, str]) -> None:
            with suppress(FileNotFoundError):
                self._store.copy(*move)

        self._each(copy, moves)
        self.remove(staged for staged, _ in moves)

    def fsync_names(self, names: Iterable[str]) -> None:
        """Do nothing: what the store has acknowledged is durable."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects that exist."""
        gone = list(names)
        try:
            self._store.delete(gone)
        except FileNotFoundError:
            # Some stores fail on a missing object and leave others in place.
            self._each(self._remove, gone)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._store.delete(name)

    def files(self, below: str) -> dict[str, StoredFile]:
        """Return all objects below a prefix."""
        now = datetime.now(UTC)
        metas = (meta for chunk in self._store.list(below or None) for meta in chunk)
        return {
            meta["path"]: StoredFile(meta["size"], (now - meta["last_modified"]).total_seconds())
            for meta in metas
            if below or not meta["path"].startswith(f"{INTERNAL_FOLDER}/")
        }

    def read(self, name: str) -> tuple[bytes, dict[str, str]] | None:
        """Return a small object and its tag."""
        try:
            found = self._store.get(name)
        except FileNotFoundError:
            return None
        return bytes(found.bytes()), _version(found.meta)

    def compare_and_swap(self, name: str, data: bytes, version: dict[str, str] | None) -> dict[str, str]:
        """Put a small object if it still has this tag."""
        mode: Any = version or "create"
        try:
            return _version(self._store.put(name, data, mode=mode))
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
            # A put whose response was lost is retried, and then conflicts with itself.
            found = self.read(name)
            if found and found[0] == data:
                return found[1]
            raise VersionConflict(name) from error

    @contextmanager
    def translated_errors(self, node: str) -> Iterator[None]:
        """Translate errors of the store to PenstockErrors of the node."""
        try:
            yield
        except PenstockError:
            raise
        except (BaseError, OSError) as error:
            text, hint = self._explain(error)
            raise SinkFailed(text, node=node, hint=hint, transient=_is_transient(error)) from error

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

    def _explain(self, error: Exception) -> tuple[str, str]:
        """Return the error message and a hint."""
        said = re.search(r"<Message>(.*?)</Message>", str(error), re.DOTALL)
        why = masked_text(said.group(1) if said else str(error)).split("\n")[0]
        bucket = self.url.split("/")[2]
        if "NoSuchBucket" in str(error):
            return f"there is no bucket {bucket!r} for {self.url}", "create the bucket, or correct its name"
        if _forbidden(error):
            return (
                f"cannot write to {self.url}: permission denied: {why}",
                f"check {_keys(self._store)} and their permissions",
            )
        if isinstance(error, FileNotFoundError):
            return (
                f"an object of {self.url} is missing: {why}",
                f"do not touch {self.url}/{INTERNAL_FOLDER} while a job runs",
            )
        return f"cannot write to {self.url}: {why}", f"check that the store is reachable, and {_keys(self._store)}"


def _is_transient(error: Exception) -> bool:
    return not (_forbidden(error) or isinstance(error, FileNotFoundError))


def _forbidden(error: Exception) -> bool:
    # A denied listing has no error class of its own.
    return isinstance(error, PermissionDeniedError | UnauthenticatedError) or "403 Forbidden" in str(error)


def _keys(store: object) -> str:
    if isinstance(store, S3Store):
        return "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"
    return "the credentials in the environment"


def _version(meta: Any) -> dict[str, str]:
    return {part: meta[part] for part in ("e_tag", "version") if meta.get(part)}
