"""The four codecs of record batches, as Kafka's clients write and read them."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import cramjam

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.batches import Bytes

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"uncompressed": 0, "zstd": ZSTD, "lz4": LZ4, "snappy": SNAPPY, "gzip": GZIP}
_LZ4_FAST = 9  # the default of compression.lz4.level, for which Kafka too takes the fast mode, which has no levels
_MOST = 256 << 20  # bytes of one batch: a megabyte of zstd can hold gigabytes
_LARGE = 32 << 20  # of batches that hold more than this, only one is open at a time
_PIECE = 1 << 20
_one_large = threading.Lock()
Unpack = Callable[[Any, Any], int]
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 << 10


class Codec(NamedTuple):
    """How a topic compresses what it gets: the number of the codec, and its level, None where it has none."""

    number: int
    level: int | None = None


def compress(codec: int, data: Bytes, level: int | None = None) -> Bytes:
    """Return what a batch with this codec holds."""
    return _COMPRESS[codec](data, level) if codec else data


def decompress(codec: int, data: Bytes) -> bytes:
    """Return the records of a batch as they were before compression, or refuse what is none."""
    with opened(codec, data) as body:
        return bytes(body)


@contextmanager
def opened(codec: int, data: Bytes) -> Iterator[Bytes]:
    """Show the records of a batch as they were before compression, without a copy of them; refuse what is none."""
    if not codec:
        yield data
    elif codec == SNAPPY:
        yield _from_snappy(data)
    elif codec in _DECOMPRESS:
        with _unpacked(_DECOMPRESS[codec], data) as body:
            yield body
    else:
        raise LogError(ErrorCode.unsupported_compression_type, f"there is no codec {codec}")


@contextmanager
def _unpacked(unpack_into: Unpack, data: Bytes) -> Iterator[memoryview]:
    # A room is freed when nobody has a view of it any more; the system gives memory only where something is written.
    body = _fitting(unpack_into, data)
    if body is not None:
        yield body
        return
    with _one_large:
        with _refusals():
            room = mmap.mmap(-1, _MOST)
            body = memoryview(room)[: unpack_into(data, room)]
        yield body


def _fitting(unpack_into: Unpack, data: Bytes) -> memoryview | None:
    """Return the records unless they are large, or none: then the reason is found at the second try."""
    room = mmap.mmap(-1, _LARGE)
    try:
        return memoryview(room)[: unpack_into(data, room)]
    except cramjam.DecompressionError:
        return None


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except cramjam.DecompressionError as error:
        raise LogError(ErrorCode.corrupt_message, f"the records cannot be decompressed: {error}") from error


def _gzip(data: Bytes, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, level=6 if level is None or level < 0 else level))


def _zstd(data: Bytes, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


def _lz4(data: Bytes, level: int | None) -> bytes:
    # Java's reader refuses blocks that refer to earlier ones.
    chosen = None if level == _LZ4_FAST else level
    packer: Any = cramjam.lz4.Compressor(level=chosen, block_linked=False)
    for at in range(0, len(data), _PIECE):
        packer.compress(bytes(data[at : at + _PIECE]))  # it takes nothing else
    return bytes(packer.finish())


def _to_xerial(data: Bytes, _level: int | None) -> bytes:
    # Java clients read snappy only in this framing of its first implementation; the others read both.
    blocks = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        blocks += [len(block).to_bytes(4), block]
    return b"".join(blocks)


def _from_snappy(data: Bytes) -> bytes:
    with _refusals():
        if bytes(data[:8]) != _XERIAL[:8]:
            return _snappy_block(data, _MOST)
        blocks, at, left = [], len(_XERIAL), _MOST
        while at < len(data):
            size = int.from_bytes(data[at : at + 4])
            blocks.append(_snappy_block(data[at + 4 : at + 4 + size], left))
            left -= len(blocks[-1])
            at += 4 + size
        return b"".join(blocks)


def _snappy_block(data: Bytes, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > most:
        raise LogError(ErrorCode.corrupt_message, f"more than {_MOST} bytes in one batch")
    return bytes(cramjam.snappy.decompress_raw(data))


_COMPRESS: dict[int, Callable[[Bytes, int | None], bytes]] = {
    GZIP: _gzip,
    SNAPPY: _to_xerial,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESS: dict[int, Unpack] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
