"""The client's side of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable

from penstock.connectors.connection import Connection

Exchange = Callable[[bytes], bytes]
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# A server that asks for more is no server, but wants this process to be busy.
_MOST_ROUNDS = 1_000_000


class NotProven(Exception):
    """The other side did not show that it knows the password either."""


def log_in(connection: Connection, exchange: Exchange) -> None:
    """Prove to a broker who one is; `exchange` sends a message and returns the answer, or raises what it says."""
    user, password = connection.user or "", connection.password or ""
    if connection.mechanism == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
    else:
        _scram(_HASHES[connection.mechanism], user, password, exchange)


def _scram(kind: str, user: str, password: str, exchange: Exchange) -> None:
    nonce = secrets.token_urlsafe(24)
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    answer = exchange(f"n,,{bare}".encode()).decode()
    said = _fields(answer)
    rounds = int(said.get("i", "0"))
    if not said.get("r", "").startswith(nonce) or not 0 < rounds <= _MOST_ROUNDS:
        raise NotProven
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), b64decode(said["s"]), rounds)
    unproven = f"c=biws,r={said['r']}"
    signed = f"{bare},{answer},{unproven}".encode()
    key = hmac.digest(salted, b"Client Key", kind)
    signature = hmac.digest(hashlib.new(kind, key).digest(), signed, kind)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    last = exchange(f"{unproven},p={b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", kind), signed, kind)
    if not hmac.compare_digest(b64decode(_fields(last).get("v", "")), expected):
        raise NotProven


def _fields(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
