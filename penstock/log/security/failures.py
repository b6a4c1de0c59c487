from __future__ import annotations

from penstock.log.errors import ErrorCode, LogError


class LoginFailed(LogError):
    """A login was refused. It never says whether the name or the password was wrong."""

    def __init__(self, *, why: str = "the name or the password is wrong") -> None:
        super().__init__(ErrorCode.sasl_authentication_failed, f"login failed: {why}")
