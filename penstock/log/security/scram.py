"""The server's side of SCRAM (RFC 5802) as a state machine: a client's message in, the answer out."""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable

from penstock.log.security.failures import LoginFailed
from penstock.log.security.users import Users


class Scram:
    """One login. Two steps; `user` is known, and `done` holds, only after the second."""

    def __init__(self, users: Users, mechanism: str, nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)):
        self.user = ""
        self.done = False
        self._users, self._mechanism, self._nonce = users, mechanism, nonce
        self._signed = ""

    def step(self, message: bytes) -> bytes:
        """Answer a message of the client, or raise LoginFailed."""
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
    # "y": the client could bind the channel and believes that the server cannot, which is so.
    if binding not in ("n", "y"):
        raise LoginFailed(why="channel binding is not offered")
    return binding, authorized_as, bare


def _fields(text: str, *names: str) -> dict[str, str]:
    """Read `a=..,b=..`; the first ones must be those named, what follows them are extensions."""
    parts = [part.partition("=") for part in text.split(",")]
    if tuple(part[0] for part in parts[: len(names)]) != names or not all(part[2] for part in parts[: len(names)]):
        raise LoginFailed(why=f"the message must begin with the fields {', '.join(names)}")
    return {name: value for name, _, value in parts}


def _plain_name(name: str) -> str:
    if name.replace("=2C", "").replace("=3D", "").count("="):
        raise LoginFailed(why="the user name is not encoded as RFC 5802 asks")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise LoginFailed(why="a field is not base64") from None
