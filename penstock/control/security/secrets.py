"""Where secrets are: in the environment of the job manager, in files that only it may read, or in its store."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import MissingSecret
from penstock.secret_references import PREFIX, missing, references

_LARGEST = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Secrets:
    """Finds the values of secrets by their names: `PENSTOCK_SECRET_NAME`, else the file `NAME`, else in the store.

    Values are read each time, so that a changed secret is used by the next driver that starts.
    """

    def __init__(
        self,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stored: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        self._folder, self._stored = folder, stored
        self._environment: Mapping[str, str] = os.environ if environment is None else environment

    def environment(self, *values: Any) -> dict[str, str]:
        """Return the variables that a driver needs for the references in its settings and arguments."""
        return {PREFIX + name: self.find(name) for name in sorted(references(values))}

    def find(self, name: str) -> str:
        """Return the value of a secret; raises MissingSecret."""
        if PREFIX + name in self._environment:
            return self._environment[PREFIX + name]
        path = None if self._folder is None else self._folder / name
        if path is not None and path.is_file():
            return _read(path)
        found = self._stored(name)
        if found is None:
            where = f", or write it to {path} with mode 600" if path else ""
            raise missing(name, f"penstock secret set {name}; or start the job manager with {PREFIX}{name}{where}")
        return found


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Of the open file: between a check of the path and the opening it could be replaced.
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            data = file.read(_LARGEST + 1)
    except OSError as error:
        message = f"secret '{path.name}': {path} cannot be read: {error.strerror}"
        raise MissingSecret(
            message, node="secrets", hint=f"the job manager's user must own it: chmod 600 {path}"
        ) from None
    if len(data) > _LARGEST:
        message = f"secret '{path.name}': {path} is larger than {_LARGEST} bytes"
        raise MissingSecret(message, node="secrets", hint="a secret is a password, a key or a token")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        message = f"secret '{path.name}': {path} is not UTF-8 text"
        raise MissingSecret(message, node="secrets", hint="write binary secrets as base64") from None


def _check_mode(path: Path, mode: int) -> None:
    if mode & _OTHERS:
        message = f"secret '{path.name}': others may read {path}: its mode is {stat.S_IMODE(mode):o}"
        raise MissingSecret(message, node="secrets", hint=f"chmod 600 {path}")
