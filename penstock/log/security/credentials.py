"""What is kept of a password: salted keys, from which it cannot be read back."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any, Self

MIN_ITERATIONS, DEFAULT_ITERATIONS, MAX_ITERATIONS = 4096, 8192, 16384
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}  # the stronger one last


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
        """Read what `to_json` gave."""
        keys = (bytes.fromhex(kept[name]) for name in ("salt", "stored_key", "server_key"))
        return cls(mechanism, int(kept["iterations"]), *keys)

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept on disk."""
        keys = {name: getattr(self, name).hex() for name in ("salt", "stored_key", "server_key")}
        return {"iterations": self.iterations, **keys}

    def fits_password(self, password: str) -> bool:
        """Say whether a password is the one that was hashed, in a time that does not tell how wrong it is."""
        given = salted(self.mechanism, password, self.salt, self.iterations)
        stored_key = digest(self.mechanism, mac(self.mechanism, given, b"Client Key"))
        return hmac.compare_digest(stored_key, self.stored_key)

    def fits_proof(self, proof: bytes, signed: bytes) -> bool:
        """Say whether a client's proof over the exchanged messages was made with the password."""
        signature = mac(self.mechanism, self.stored_key, signed)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(digest(self.mechanism, client_key), self.stored_key)

    def server_signature(self, signed: bytes) -> bytes:
        """Return what proves to the client that the server knows its keys."""
        return mac(self.mechanism, self.server_key, signed)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: slow on purpose, and outside the interpreter's lock."""
    return hashlib.pbkdf2_hmac(SCRAM[mechanism], password.encode(), salt, iterations)


def mac(mechanism: str, key: bytes, data: bytes) -> bytes:
    """Return the keyed hash of a mechanism."""
    return hmac.digest(key, data, SCRAM[mechanism])


def digest(mechanism: str, data: bytes) -> bytes:
    """Return the hash of a mechanism."""
    return hashlib.new(SCRAM[mechanism], data).digest()
