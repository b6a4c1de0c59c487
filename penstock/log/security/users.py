"""The users of a data folder and their SCRAM credentials: salted keys, from which no password can be recovered."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from penstock.errors import SettingsError, choices
from penstock.storage.durable_files import JsonFile, damaged_file

MIN_ITERATIONS, DEFAULT_ITERATIONS, MAX_ITERATIONS = 4096, 8192, 16384
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}  # the stronger one last
FILE_NAME = "users.json"


@dataclass(frozen=True)
class Credential:
    """The keys of RFC 5802 for one user and one mechanism."""

    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_password(cls, mechanism: str, password: str, *, salt: bytes = b"", iterations: int = 0) -> Self:
        """Salt and hash a password; salt and iterations are chosen unless given."""
        salt, iterations = salt or secrets.token_bytes(24), iterations or DEFAULT_ITERATIONS
        return cls.of_salted(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)

    @classmethod
    def of_salted(cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Self:
        """Derive the keys from a password that a client salted and hashed."""
        client_key = mac(mechanism, salted_password, b"Client Key")
        server_key = mac(mechanism, salted_password, b"Server Key")
        return cls(mechanism, iterations, salt, digest(mechanism, client_key), server_key)

    @classmethod
    def from_json(cls, mechanism: str, kept: dict[str, Any]) -> Self:
        """Decode the result of `to_json`."""
        keys = (bytes.fromhex(kept[name]) for name in ("salt", "stored_key", "server_key"))
        return cls(mechanism, int(kept["iterations"]), *keys)

    def to_json(self) -> dict[str, Any]:
        """Encode it for the file."""
        keys = {name: getattr(self, name).hex() for name in ("salt", "stored_key", "server_key")}
        return {"iterations": self.iterations, **keys}

    def fits_password(self, password: str) -> bool:
        """Return whether a password matches, in constant time."""
        given = salted(self.mechanism, password, self.salt, self.iterations)
        stored_key = digest(self.mechanism, mac(self.mechanism, given, b"Client Key"))
        return hmac.compare_digest(stored_key, self.stored_key)

    def fits_proof(self, proof: bytes, signed: bytes) -> bool:
        """Return whether a client's proof over the exchanged messages matches."""
        signature = mac(self.mechanism, self.stored_key, signed)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(digest(self.mechanism, client_key), self.stored_key)

    def server_signature(self, signed: bytes) -> bytes:
        """Return the server's proof over the exchanged messages."""
        return mac(self.mechanism, self.server_key, signed)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: slow on purpose, and without the GIL."""
    return hashlib.pbkdf2_hmac(SCRAM[mechanism], password.encode(), salt, iterations)


def mac(mechanism: str, key: bytes, data: bytes) -> bytes:
    """Return the keyed hash of a mechanism."""
    return hmac.digest(key, data, SCRAM[mechanism])


def digest(mechanism: str, data: bytes) -> bytes:
    """Return the hash of a mechanism."""
    return hashlib.new(SCRAM[mechanism], data).digest()


@dataclass(frozen=True)
class User:
    """A name, the credentials by mechanism, and whether it is a super user."""

    name: str
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    is_super: bool = False

    @property
    def principal(self) -> str:
        """The name as in ACLs."""
        return f"User:{self.name}"


class Users:
    """All users, stored in one file; it is reloaded at the next login if another process changed it."""

    def __init__(self, data: Path) -> None:
        self._file = JsonFile(data / FILE_NAME)
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
        """Return the credential to authenticate with, and whether it is real.

        For an unknown name it is a decoy, the same each time: clients cannot find out which names exist.
        """
        user = self.get(name)
        found = user.credentials.get(mechanism) if user else None
        return (found, True) if found else (self._decoy(name, mechanism), False)

    def put(self, user: User) -> None:
        """Add or replace a user."""
        self.change([user])

    def change(self, changed: Iterable[User], removed: Iterable[str] = ()) -> None:
        """Replace and remove users in one atomic write."""
        self.refresh()
        gone = set(removed)
        users = {name: user for name, user in self._users.items() if name not in gone}
        users |= {user.name: user for user in changed}
        self._file.write({"version": 1, "decoy": self._secret.hex(), "users": _to_json(users)})
        self._users = users
        self.revision += 1

    def add(self, name: str, password: str, mechanisms: Iterable[str] = SCRAM, *, is_super: bool = False) -> User:
        """Add a user, or change the password; a super user stays one."""
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
        """Reload the file if another process changed it; each change increments `revision`."""
        if self._file.changed:
            self._load()

    def _load(self) -> None:
        kept = self._file.read()
        try:
            self._secret = bytes.fromhex(kept["decoy"]) if kept else secrets.token_bytes(32)
            self._users = _from_json(kept.get("users", {}))
            self.revision += 1
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged_file(self._file.path, f"no users can be read from it ({type(error).__name__})") from None


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
        raise SettingsError(message, hint=choices("mechanisms", SCRAM, mechanism))
    return mechanism
