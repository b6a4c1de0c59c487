"""How one connection proves who it is."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.log.errors import ErrorCode, LogError
from penstock.log.security.plain import Plain
from penstock.log.security.scram import Scram
from penstock.log.security.users import Users


class Authentication:
    """The login of one connection: a handshake that chooses a mechanism, then its steps.

    Until `ready` holds, only ApiVersions, SaslHandshake and SaslAuthenticate may be served. Once `failed` holds, the
    connection is to be closed after the answer. While `raw` holds, the next frame is no request but a SASL message.
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
        """Whether it is known who speaks."""
        return self.principal is not None and not self.failed

    @property
    def raw(self) -> bool:
        """Whether the client sends its messages bare, as it does after a handshake of version 0."""
        return self._raw and not self.ready and not self.failed

    def handshake(self, mechanism: str, *, raw: bool = False) -> None:
        """Choose a mechanism; LogError if it is not offered or the login has begun."""
        if self._login:
            self.failed = True
            raise LogError(ErrorCode.illegal_sasl_state, "the login has begun already")
        if mechanism not in self.mechanisms:
            raise LogError(ErrorCode.unsupported_sasl_mechanism, f"{mechanism} is not offered here")
        self._login = Plain(self._users) if mechanism == "PLAIN" else Scram(self._users, mechanism)
        self._raw = raw

    def step(self, message: bytes) -> bytes:
        """Answer a message of the login; LogError ends it for good."""
        try:
            return self._step(message)
        except LogError:
            self.failed, self.principal = True, None
            raise

    def _step(self, message: bytes) -> bytes:
        if self._login is None or self._login.done or self.failed:
            raise LogError(ErrorCode.illegal_sasl_state, "a login begins with SaslHandshake, once per connection")
        answer = self._login.step(message)
        if self._login.done:
            self.principal = f"User:{self._login.user}"
        return answer
