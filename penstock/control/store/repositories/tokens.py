"""Tokens of users: stored as digests, from which no token can be recovered."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from sqlalchemy import insert, select, update

from penstock.control.store.repositories.repository import Repository, record
from penstock.control.store.tables import tokens


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token without its text. `digest` is the SHA-256 of the text, which is random."""

    id: str
    name: str
    role: str
    digest: str = field(repr=False)
    created_at: float = 0.0
    created_by: str | None = None
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked: bool = False


class Tokens(Repository):
    """All tokens; one that was revoked stays, so that the audit log can name it."""

    def add(self, token: Token) -> Token:
        """Store a token."""
        stored = asdict(token) | {"created_at": token.created_at or self._clock()}
        with self._writing() as connection:
            connection.execute(insert(tokens).values(stored))
        return Token(**stored)

    def by_digest(self, digest: str) -> Token | None:
        """Return the token of a digest, whether it is valid or not."""
        with self._reading() as connection:
            row = connection.execute(select(tokens).where(tokens.c.digest == digest)).one_or_none()
        return None if row is None else record(Token, row)

    def all(self) -> list[Token]:
        """Return the tokens that are not revoked, the newest first."""
        query = select(tokens).where(tokens.c.revoked.is_(False)).order_by(tokens.c.created_at.desc(), tokens.c.id)
        with self._reading() as connection:
            return [record(Token, row) for row in connection.execute(query)]

    def revoke(self, token: str) -> bool:
        """Revoke a token by its id; return whether it was valid."""
        valid = (tokens.c.id == token, tokens.c.revoked.is_(False))
        with self._writing() as connection:
            return connection.execute(update(tokens).where(*valid).values(revoked=True)).rowcount > 0

    def used(self, token: str, at: float) -> None:
        """Store when a token was last used."""
        with self._writing() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token).values(last_used_at=at))
