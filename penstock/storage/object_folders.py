"""Folders in object stores: S3 and compatible services, Google Cloud Storage, Azure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import from_url

from penstock.errors import StoreFailed
from penstock.masking import masked_text
from penstock.storage.store_urls import VARIABLES, refuse_login

if TYPE_CHECKING:
    from penstock.storage.folders import Folder

ATTEMPTS = 10
# Timeouts of one request, and of all its retries together.
_REQUEST, _PATIENCE = timedelta(seconds=30), timedelta(seconds=90)

Config = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ObjectFolder:
    """A folder in a bucket. Its credentials are sent with it to tasks on other machines, and are never shown."""

    url: str
    config: Config = field(repr=False)
    local: None = None

    @classmethod
    def at(cls, url: str, environment: Mapping[str, str] = os.environ) -> ObjectFolder:
        """Return the folder at a URL, with credentials of the standard variables (AWS_*, ...)."""
        refuse_login(url)
        return cls(url.rstrip("/"), _config(urlsplit(url).scheme, environment))

    @property
    def hadoop(self) -> str:
        """Its URL for Hadoop."""
        scheme, bucket, path, *_ = urlsplit(self.url)
        if scheme == "az":
            return f"abfss://{bucket}@{dict(self.config).get('azure_storage_account_name')}.dfs.core.windows.net{path}"
        return f"{'s3a' if scheme == 's3' else scheme}://{bucket}{path}"

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectFolder:
        # Without a name it is this folder: a trailing slash would give keys with a double slash.
        return ObjectFolder(f"{self.url}/{name}", self.config) if name else self

    def read(self, name: str) -> bytes | None:
        """Return an object's content, or None if it does not exist."""
        try:
            found: bytes = self._ask(name, lambda store, key: bytes(obstore.get(store, key).bytes()))
            return found
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        """Put an object; it is durable once the store has acknowledged it."""
        try:
            self._ask(name, partial(obstore.put, file=data, mode="create" if once else "overwrite"))
        except FileExistsError:
            # The response to an earlier try of this call may have been lost.
            if self.read(name) != data:
                raise

    def names(self) -> list[str]:
        """Return the names right in it, sorted."""
        found = self._ask("", obstore.list_with_delimiter)
        keys = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted({name.strip("/") for name in map(self._below, keys) if name} - {""})

    def files(self) -> dict[str, int]:
        """Return all objects below it with their sizes."""
        found = self._ask("", lambda store, key: obstore.list(store, key).collect())
        named = {name: each["size"] for each in found if (name := self._below(each["path"]))}
        # Hadoop represents a folder by an empty object of the folder's name.
        folders = {name.rpartition("/")[0] for name in named}
        return {name: size for name, size in named.items() if name not in folders}

    def remove(self, name: str) -> None:
        """Remove an object, or all below a folder."""
        below = [f"{name}/{each}".lstrip("/") for each in (self / name if name else self).files()]
        for each in [*below, *([name] if name else [])]:
            try:
                self._ask(each, obstore.delete)
            except FileNotFoundError:
                continue

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Copy within the store where both are in one bucket, else through this machine."""
        for name in names:
            if isinstance(to, ObjectFolder) and self._bucket == to._bucket:
                self._ask(name, partial(obstore.copy, to=to._key(name)))
                continue
            data = self.read(name)
            if data is None:
                raise FileNotFoundError(f"{self.url}/{name}")  # noqa: EM102 - the name is all that there is to say
            to.write(name, data)

    def _ask(self, name: str, what: Callable[[Any, str], Any]) -> Any:
        with _failures(f"{self.url}/{name}".rstrip("/")):
            return what(_store(self._bucket, self.config), self._key(name))

    @property
    def _bucket(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def _below(self, key: str) -> str | None:
        """Return the name of an object below this folder; None for the object of the folder itself."""
        prefix = self._key("")
        return key.removeprefix(prefix) if key.startswith(prefix) else None

    def _key(self, name: str) -> str:
        return f"{urlsplit(self.url).path}/{name}".lstrip("/")


def _config(scheme: str, environment: Mapping[str, str]) -> Config:
    prefix = VARIABLES[scheme]
    found = {name.lower(): value for name, value in environment.items() if name.startswith(prefix) and value}
    known = [(name, value) for name, value in found.items() if name in _KNOWN or scheme != "s3"]
    return tuple(sorted(known))


# The AWS_* variables that are passed to the store; others (profiles, SDK paging, ...) are not.
_KNOWN = {
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_region",
    "aws_default_region",
    "aws_endpoint_url",
    "aws_max_attempts",
}


@cache
def _store(bucket: str, config: Config) -> Any:
    options = dict(config)
    attempts = int(options.pop("aws_max_attempts", ATTEMPTS))
    http = options.get("aws_endpoint_url", "").startswith("http://")
    return from_url(
        bucket,
        config=options,  # type: ignore[call-overload]
        client_options={"allow_http": http, "timeout": _REQUEST},
        retry_config={"max_retries": attempts - 1, "retry_timeout": _PATIENCE},
    )


@contextmanager
def _failures(where: str) -> Iterator[None]:
    """Translate the library's errors to file errors, and others to StoreFailed."""
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(where) from error
    except AlreadyExistsError as error:
        raise FileExistsError(where) from error
    except BaseError as error:
        message = f"{where}: the object store failed: {_reason(error)}"
        hint = "check that it is running, and AWS_ENDPOINT_URL, AWS_REGION and the credentials; then run again"
        raise StoreFailed(message, hint=hint, transient=True) from error


def _reason(error: BaseError) -> str:
    said = masked_text(str(error)).split("\n")[0]
    return said.split("Error performing ")[-1][:300]
