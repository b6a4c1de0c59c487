"""How a request or a record batch fails: with one of Kafka's error codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

CORRUPT_MESSAGE = "corrupt_message"
INVALID_RECORD = "invalid_record"
INVALID_REQUEST = "invalid_request"
MESSAGE_TOO_LARGE = "message_too_large"
UNSUPPORTED_COMPRESSION = "unsupported_compression_type"
UNSUPPORTED_FORMAT = "unsupported_for_message_format"


class ProtocolError(Exception):
    """A request, a part of it, or the bytes of a batch are refused; `code` is what a broker answers.

    A code can be given by its name, such as CORRUPT_MESSAGE: only a broker needs the number, and kio, which has it,
    is slow to import.
    """

    def __init__(self, code: ErrorCode | str, message: str = "") -> None:
        name = code if isinstance(code, str) else code.name
        super().__init__(message or name)
        self._code = code
        self.message = message or name.replace("_", " ")

    @property
    def code(self) -> ErrorCode:
        """Kafka's error code."""
        if isinstance(self._code, str):
            from kio.schema.errors import ErrorCode

            self._code = ErrorCode[self._code]
        return self._code
