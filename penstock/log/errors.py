"""Errors of requests: each has one of Kafka's error codes, on which clients act."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from penstock.kafka.errors import ProtocolError as LogError

__all__ = ["ErrorCode", "InvalidRecordsError", "LogError"]


class InvalidRecordsError(LogError):
    """Batches are refused because of some records: `records` has the index and the problem of each."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str | None]]) -> None:
        super().__init__(code, message)
        self.records = records
