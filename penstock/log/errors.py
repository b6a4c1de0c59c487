"""How a request fails: with one of Kafka's error codes, for clients act on the code."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "InvalidRecordsError", "LogError"]


class LogError(Exception):
    """A request, or one topic or partition of it, cannot be served; `code` is what the client is told."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or code.name.replace("_", " ")


class InvalidRecordsError(LogError):
    """Batches are refused for some of their records: `records` has the index and the problem of each of those."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str | None]]) -> None:
        super().__init__(code, message)
        self.records = records
