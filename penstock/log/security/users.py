"""The users of a data folder and their credentials."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import SettingsError, choices
from penstock.log.security.credentials import DEFAULT_ITERATIONS, SCRAM, Credential, digest, mac
from penstock.log.security.documents import Document, damaged

FILE_NAME = "users.json"


@dataclass(frozen=True)
class User:
    """A name, the credentials by mechanism, and whether every right is granted."""

    name: str
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    is_super: bool = False

    @property
    def principal(self) -> str:
        """The name as ACLs and clients see it."""
        return f"User:{self.name}"


class Users:
    """All users, kept in one file; one that another process changes is read again at the next login."""

    def __init__(self, data: Path) -> None:
        self._file = Document(data / FILE_NAME)
        self._users: dict[str, User] = {}
        self.revision = 0
        self._load()

    def __iter__(self) -> Iterator[User]:
        self.refresh()
        return iter(sorted(self._users.values(), key=lambda user: user.name))

    def __len__(self) -> int:
        self.refresh()
        return len(self._users)

    def get(self, name: str) -> User | None:
        """Return a user, or None."""
        self.refresh()
        return self._users.get(name)

    def credential(self, name: str, mechanism: str) -> tuple[Credential, bool]:
        """Return the credential to check a login with, and whether it is real.

        For a name that is not known it is a decoy, the same each time: nobody learns which names exist.
        """
        user = self.get(name)
        found = user.credentials.get(mechanism) if user else None
        return (found, True) if found else (self._decoy(name, mechanism), False)

    def put(self, user: User) -> None:
        """Add or replace a user."""
        self.change([user])

    def change(self, changed: Iterable[User], removed: Iterable[str] = ()) -> None:
        """Replace and remove users in one write: all or nothing."""
        self.refresh()
        gone = set(removed)
        users = {name: user for name, user in self._users.items() if name not in gone}
        users |= {user.name: user for user in changed}
        self._file.write({"version": 1, "decoy": self._secret.hex(), "users": _to_json(users)})
        self._users = users
        self.revision += 1

    def add(self, name: str, password: str, mechanisms: Iterable[str] = SCRAM, *, is_super: bool = False) -> User:
        """Add a user, or give one another password; a super user stays one."""
        if not name or not password:
            message = "a user needs a name and a password"
            raise SettingsError(message, hint="neither may be empty")
        credentials = {each: Credential.of_password(_known(each), password) for each in mechanisms}
        known = self.get(name)
        user = User(name, credentials, is_super or (known is not None and known.is_super))
        self.put(user)
        return user

    def remove(self, name: str) -> None:
        """Remove a user."""
        if self.get(name) is None:
            names = [user.name for user in self]
            message = f"there is no user '{name}'"
            raise SettingsError(message, hint=choices("users here", names, name))
        self.change([], [name])

    def _decoy(self, name: str, mechanism: str) -> Credential:
        seed = mac(mechanism, self._secret, f"{mechanism} {name}".encode())
        return Credential(mechanism, DEFAULT_ITERATIONS, seed[:24], digest(mechanism, seed), seed)

    def refresh(self) -> None:
        """Take in what another process changed; each change has a `revision` of its own."""
        if self._file.changed:
            self._load()

    def _load(self) -> None:
        kept = self._file.read()
        try:
            self._secret = bytes.fromhex(kept["decoy"]) if kept else secrets.token_bytes(32)
            self._users = _from_json(kept.get("users", {}))
            self.revision += 1
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged(self._file.path, f"no users can be read from it ({type(error).__name__})") from None


def _to_json(users: Mapping[str, User]) -> dict[str, Any]:
    return {
        user.name: {"super": user.is_super, "credentials": {k: c.to_json() for k, c in user.credentials.items()}}
        for user in users.values()
    }


def _from_json(kept: Mapping[str, Any]) -> dict[str, User]:
    return {
        name: User(name, {k: Credential.from_json(k, c) for k, c in each["credentials"].items()}, bool(each["super"]))
        for name, each in kept.items()
    }


def _known(mechanism: str) -> str:
    if mechanism not in SCRAM:
        message = f"unknown mechanism '{mechanism}'"
        raise SettingsError(message, hint=choices("mechanisms to keep a password for", SCRAM, mechanism))
    return mechanism
