"""Tokens: random texts that are shown once and stored as digests."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.control.security.roles import Principal, Role
from penstock.control.store.repositories.jobs import new_id
from penstock.control.store.repositories.tokens import Token
from penstock.errors import BadValue

PREFIX = "pst_"  # scanners for leaked secrets find tokens by it
_RANDOM_BYTES = 32
# The last use is stored no more often than this: it is no reason for a write per request.
_USE_SECONDS = 60.0
# How long other managers of the store take to see that the first token was created.
_REQUIRED_SECONDS = 5.0


class TokenStore(Protocol):
    """The tokens of a store: `store.tokens`."""

    def add(self, token: Token) -> Token:
        """Store a token."""

    def by_digest(self, digest: str) -> Token | None:
        """Return the token of a digest."""

    def all(self) -> list[Token]:
        """Return the tokens that are not revoked."""

    def revoke(self, token: str) -> bool:
        """Revoke a token by its id."""

    def used(self, token: str, at: float) -> None:
        """Store when a token was last used."""


@dataclass(frozen=True)
class CreatedToken:
    """A new token; its text is not stored and cannot be shown again."""

    token: Token
    text: str = field(repr=False)


class Access:
    """Creates, checks and revokes tokens.

    `open_to_others`: the server listens beyond loopback. Then every request needs a token; otherwise only once there
    is one.
    """

    def __init__(
        self, tokens: TokenStore, *, open_to_others: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._tokens, self._open_to_others, self._clock = tokens, open_to_others, clock
        self._exists, self._checked_at = False, float("-inf")

    def required(self) -> bool:
        """Return whether requests need a token."""
        known = self.known_requirement()
        if known is None:
            now = self._clock()
            self._exists, self._checked_at = bool(self._tokens.all()), now
            known = self._exists
        return known

    def known_requirement(self) -> bool | None:
        """Return whether requests need a token, as far as that is known without the store."""
        if self._open_to_others or self._exists:
            return True
        return None if self._clock() - self._checked_at >= _REQUIRED_SECONDS else False

    def create(
        self, name: str, role: Role, *, expires_at: float | None = None, created_by: str | None = None
    ) -> CreatedToken:
        """Create a token."""
        now = self._clock()
        if expires_at is not None and expires_at <= now:
            message = "the token would have expired already"
            raise BadValue(message, node="token", hint="choose a later time")
        text = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        token = Token(
            id=new_id(),
            name=name,
            role=str(role),
            digest=digest(text),
            created_at=now,
            created_by=created_by,
            expires_at=expires_at,
        )
        stored = self._tokens.add(token)
        self._exists = True
        return CreatedToken(stored, text)

    def revoke(self, token: str) -> bool:
        """Revoke a token by its id; return whether it was valid."""
        revoked = self._tokens.revoke(token)
        self._exists, self._checked_at = False, float("-inf")
        return revoked

    def authenticate(self, text: str) -> Principal | None:
        """Return the holder of a token; None if it is unknown, revoked or expired."""
        # The lookup is by a digest that the sender cannot choose, so its time says nothing about other tokens.
        presented = digest(text)
        token = self._tokens.by_digest(presented)
        if token is None or not hmac.compare_digest(token.digest, presented):
            return None
        now = self._clock()
        if token.revoked or (token.expires_at is not None and token.expires_at <= now):
            return None
        if token.last_used_at is None or now - token.last_used_at >= _USE_SECONDS:
            self._tokens.used(token.id, now)
        return Principal(token.name, Role(token.role), token.id)


def digest(text: str) -> str:
    """Return what is stored of a token. It is 32 random bytes, so a plain SHA-256 cannot be searched."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
