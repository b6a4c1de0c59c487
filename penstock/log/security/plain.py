"""PLAIN (RFC 4616), checked against the same salted keys as SCRAM: no password is kept."""

from __future__ import annotations

from penstock.log.security.credentials import SCRAM, Credential
from penstock.log.security.failures import LoginFailed
from penstock.log.security.users import User, Users

_STRONGEST = list(SCRAM)[-1]


class Plain:
    """One login in one step; hashing makes it slow, so run it beside the event loop."""

    def __init__(self, users: Users) -> None:
        self.user = ""
        self.done = False
        self._users = users

    def step(self, message: bytes) -> bytes:
        """Check name and password, or raise LoginFailed."""
        authorized_as, name, password = _split(message)
        credential, is_real = self._credential(name)
        fits = credential.fits_password(password)
        if self.done or not (fits and is_real) or authorized_as not in ("", name):
            raise LoginFailed
        self.user, self.done = name, True
        return b""

    def _credential(self, name: str) -> tuple[Credential, bool]:
        user = self._users.get(name)
        return self._users.credential(name, _strongest(user) if user else _STRONGEST)


def _strongest(user: User) -> str:
    return max(user.credentials, key=list(SCRAM).index, default=_STRONGEST)


def _split(message: bytes) -> tuple[str, str, str]:
    try:
        authorized_as, name, password = message.decode().split("\0")
    except ValueError:
        raise LoginFailed(why="the message is not 'authorized-as NUL name NUL password'") from None
    return authorized_as, name, password
