"""How a request fails: with one of Kafka's error codes, for clients act on the code."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "LogError"]


class LogError(Exception):
    """A request, or one topic or partition of it, cannot be served; `code` is what the client is told."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or code.name.replace("_", " ")
