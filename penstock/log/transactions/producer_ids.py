"""Producer ids: no two producers ever get the same one, also after a crash."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import SettingsError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.snapshot import write_whole

_BLOCK = 1000


class ProducerIds:
    """Gives out ids from blocks that are reserved in a small file; a crash wastes the rest of a block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = self._reserved = self._read()

    def take(self) -> int:
        """Return an id that nobody has had."""
        if self._next >= self._reserved:
            self._reserve(self._next + _BLOCK)
        self._next += 1
        return self._next - 1

    def _reserve(self, end: int) -> None:
        try:
            write_whole(self._path, str(end).encode())
        except OSError as error:
            raise LogError(ErrorCode.kafka_storage_error, f"cannot write {self._path.name}: {error}") from error
        self._reserved = end

    def _read(self) -> int:
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except ValueError:
            message = f"{self._path} should hold the next free producer id, a number"
            raise SettingsError(message, hint="write one into it that is larger than any id given out") from None
