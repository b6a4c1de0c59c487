"""Text in other encodings, read as UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import BinaryIO, cast

from penstock.connectors.csv_options import UTF8

_INVALID = "penstock-invalid"
# Half of a surrogate pair: no text holds it, and as bytes it is not UTF-8, so that its line is rejected.
MARK = "\udc80".encode("utf-8", "surrogatepass")


def as_utf8(file: BinaryIO, encoding: str) -> BinaryIO:
    """Return a file whose bytes are the text as UTF-8; bytes that are no text in its encoding become `MARK`."""
    if encoding == UTF8:
        return file
    return cast(BinaryIO, io.BufferedReader(_Recoded(file, encoding), 1 << 18))


def recoded(text: bytes, encoding: str) -> bytes:
    """Return UTF-8 in another encoding; what was no text there before stays a replacement character."""
    return text if encoding == UTF8 else text.decode("utf-8", "replace").encode(encoding, "replace")


class _Recoded(io.RawIOBase):
    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder(encoding)(_INVALID)
        self._ready, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._ready and not self._ended:
            data = self._file.read(1 << 16)
            self._ended = not data
            self._ready = self._decoder.decode(data, final=not data).encode("utf-8", "surrogatepass")
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\udc80", error.end


codecs.register_error(_INVALID, _mark)
