"""The codecs of record batches: what was packed, as it was before."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from typing import Any

import cramjam

# A megabyte can unpack to gigabytes; no honest batch does.
_MOST = 256 << 20
_USUAL = 2 << 20
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = 16
_Unpack = Callable[[memoryview], bytes | memoryview]


class Unreadable(Exception):
    """Bytes that are not what their codec writes."""


def unpack(codec: int, data: memoryview) -> bytes | memoryview:
    """Return what was packed with a codec, by its number in a batch."""
    if codec not in _CODECS:
        message = f"its compression is {codec}, which is not known"
        raise Unreadable(message)
    name, unpacked = _CODECS[codec]
    try:
        return unpacked(data)
    except (cramjam.DecompressionError, ValueError) as error:
        message = f"its {name} data cannot be unpacked: {error}"
        raise Unreadable(message) from error


class _Room(threading.local):
    """Memory that a thread unpacks into again and again: fresh memory costs as much as the unpacking."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(_USUAL))


_room = _Room()


def _bounded(unpack_into: Callable[[memoryview, Any], int]) -> _Unpack:
    def unpacked(data: memoryview) -> bytes:
        try:
            return bytes(_room.memory[: unpack_into(data, _room.memory)])
        except cramjam.DecompressionError:
            # Larger than usual, or damaged. The system gives memory only where something is written.
            with mmap.mmap(-1, _MOST) as room:
                return room[: unpack_into(data, room)]

    return unpacked


def _snappy(data: memoryview) -> bytes:
    """Unpack snappy, plain or in the blocks in which Java writes it."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data)
    blocks, at, left = [], _XERIAL_HEADER, _MOST
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        blocks.append(_snappy_block(data[at + 4 : at + 4 + size], left))
        left -= len(blocks[-1])
        at += 4 + size
    return b"".join(blocks)


def _snappy_block(data: memoryview, most: int = _MOST) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > most:
        message = f"more than {_MOST} bytes"
        raise ValueError(message)
    return bytes(cramjam.snappy.decompress_raw(data))


_CODECS: dict[int, tuple[str, _Unpack]] = {
    0: ("plain", lambda data: data),
    1: ("gzip", _bounded(cramjam.gzip.decompress_into)),
    2: ("snappy", _snappy),
    3: ("lz4", _bounded(cramjam.lz4.decompress_into)),
    4: ("zstd", _bounded(cramjam.zstd.decompress_into)),
}
