"""SASL authentication: PLAIN (RFC 4616) and SCRAM (RFC 5802), as state machines of one connection.

PLAIN is checked against the same salted keys as SCRAM: no password is stored.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence

from penstock.log.errors import ErrorCode, LogError
from penstock.log.security.users import SCRAM, Credential, User, Users

_STRONGEST = list(SCRAM)[-1]


class LoginFailed(LogError):
    """Authentication failed. The message does not reveal whether the name or the password was wrong."""

    def __init__(self, *, why: str = "the name or the password is wrong") -> None:
        super().__init__(ErrorCode.sasl_authentication_failed, f"login failed: {why}")


class Plain:
    """PLAIN in one step; hashing makes it slow, so run it in a thread."""

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


class Scram:
    """SCRAM in two steps; `user` and `done` are set after the second."""

    def __init__(self, users: Users, mechanism: str, nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)):
        self.user = ""
        self.done = False
        self._users, self._mechanism, self._nonce = users, mechanism, nonce
        self._signed = ""

    def step(self, message: bytes) -> bytes:
        """Return the reply to a message of the client, or raise LoginFailed."""
        text = _text(message)
        return (self._last(text) if self._signed else self._first(text)).encode()

    def _first(self, text: str) -> str:
        binding, authorized_as, bare = _split_first(text)
        fields = _fields(bare, "n", "r")
        self._name, self._header = _plain_name(fields["n"]), f"{binding},{authorized_as},"
        if authorized_as not in ("", f"a={fields['n']}"):
            raise LoginFailed
        self._credential, self._is_real = self._users.credential(self._name, self._mechanism)
        self._whole_nonce = fields["r"] + self._nonce()
        salt = b64encode(self._credential.salt).decode()
        answer = f"r={self._whole_nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{answer}"
        return answer

    def _last(self, text: str) -> str:
        unproven, _, proof = text.rpartition(",p=")
        fields = _fields(unproven, "c", "r")
        signed = f"{self._signed},{unproven}".encode()
        fits = self._credential.fits_proof(_decoded(proof), signed)
        same = fields["r"] == self._whole_nonce and _decoded(fields["c"]) == self._header.encode()
        if self.done or not (fits and same and self._is_real):
            raise LoginFailed
        self.user, self.done = self._name, True
        return f"v={b64encode(self._credential.server_signature(signed)).decode()}"


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed(why="the message is not UTF-8") from None


def _split_first(text: str) -> tuple[str, str, str]:
    binding, _, rest = text.partition(",")
    authorized_as, _, bare = rest.partition(",")
    # "y": the client supports channel binding and assumes that the server does not, which is correct.
    if binding not in ("n", "y"):
        raise LoginFailed(why="channel binding is not offered")
    return binding, authorized_as, bare


def _fields(text: str, *names: str) -> dict[str, str]:
    """Parse `a=..,b=..`; the first ones must be those named, the rest are extensions."""
    parts = [part.partition("=") for part in text.split(",")]
    if tuple(part[0] for part in parts[: len(names)]) != names or not all(part[2] for part in parts[: len(names)]):
        raise LoginFailed(why=f"the message must begin with the fields {', '.join(names)}")
    return {name: value for name, _, value in parts}


def _plain_name(name: str) -> str:
    if name.replace("=2C", "").replace("=3D", "").count("="):
        raise LoginFailed(why="the user name is not encoded as RFC 5802 requires")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise LoginFailed(why="a field is not base64") from None


class Authentication:
    """The authentication of one connection: a handshake that chooses a mechanism, then its steps.

    Until `ready`, only ApiVersions, SaslHandshake and SaslAuthenticate are served. Once `failed`, the connection is
    closed after the reply. While `raw`, the next frame is not a request but a SASL message.
    """

    def __init__(self, users: Users, mechanisms: Sequence[str], *, certificate: str | None = None) -> None:
        self.principal = certificate
        self.mechanisms = mechanisms
        self.failed = False
        self._users = users
        self._login: Scram | Plain | None = None
        self._raw = False

    @property
    def ready(self) -> bool:
        """Whether the client is authenticated."""
        return self.principal is not None and not self.failed

    @property
    def raw(self) -> bool:
        """Whether the client sends SASL messages without request headers, as after a handshake of version 0."""
        return self._raw and not self.ready and not self.failed

    def handshake(self, mechanism: str, *, raw: bool = False) -> None:
        """Choose a mechanism; LogError if it is not offered or authentication has started."""
        if self._login:
            self.failed = True
            raise LogError(ErrorCode.illegal_sasl_state, "authentication has already started")
        if mechanism not in self.mechanisms:
            raise LogError(ErrorCode.unsupported_sasl_mechanism, f"{mechanism} is not offered here")
        self._login = Plain(self._users) if mechanism == "PLAIN" else Scram(self._users, mechanism)
        self._raw = raw

    def step(self, message: bytes) -> bytes:
        """Return the reply to a SASL message; after a LogError authentication has failed."""
        try:
            return self._step(message)
        except LogError:
            self.failed, self.principal = True, None
            raise

    def _step(self, message: bytes) -> bytes:
        if self._login is None or self._login.done or self.failed:
            raise LogError(
                ErrorCode.illegal_sasl_state, "authentication starts with SaslHandshake, once per connection"
            )
        answer = self._login.step(message)
        if self._login.done:
            self.principal = f"User:{self._login.user}"
        return answer
