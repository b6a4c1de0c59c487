"""The four codecs of record batches, as Kafka's clients write and read them."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, NamedTuple

import cramjam

from penstock.log.errors import ErrorCode, LogError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"uncompressed": 0, "zstd": ZSTD, "lz4": LZ4, "snappy": SNAPPY, "gzip": GZIP}
_LZ4_FAST = 9  # the default of compression.lz4.level, for which Kafka too takes the fast mode, which has no levels
_MOST = 256 << 20  # bytes of one batch: a megabyte of zstd can hold gigabytes
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 << 10


class Codec(NamedTuple):
    """How a topic compresses what it gets: the number of the codec, and its level, None where it has none."""

    number: int
    level: int | None = None


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Return what a batch with this codec holds."""
    return _COMPRESS[codec](data, level) if codec else data


def decompress(codec: int, data: bytes) -> bytes:
    """Return the records of a batch as they were before compression, or refuse what is none."""
    if not codec:
        return data
    unpack = _DECOMPRESS.get(codec)
    if unpack is None:
        raise LogError(ErrorCode.unsupported_compression_type, f"there is no codec {codec}")
    try:
        return unpack(data)
    except cramjam.DecompressionError as error:
        raise LogError(ErrorCode.corrupt_message, f"the records cannot be decompressed: {error}") from error


def _bounded(unpack_into: Callable[[bytes, Any], int]) -> Callable[[bytes], bytes]:
    def unpack(data: bytes) -> bytes:
        with mmap.mmap(-1, _MOST) as room:  # the system gives memory only where something is written
            return room[: unpack_into(data, room)]

    return unpack


def _gzip(data: bytes, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, level=6 if level is None or level < 0 else level))


def _zstd(data: bytes, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


def _lz4(data: bytes, level: int | None) -> bytes:
    # Java's reader refuses blocks that refer to earlier ones.
    chosen = None if level == _LZ4_FAST else level
    packer: Any = cramjam.lz4.Compressor(level=chosen, block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


def _to_xerial(data: bytes, _level: int | None) -> bytes:
    # Java clients read snappy only in this framing of its first implementation; the others read both.
    blocks = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        blocks += [len(block).to_bytes(4), block]
    return b"".join(blocks)


def _from_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL[:8]):
        return _snappy_block(data)
    blocks, at = [], len(_XERIAL)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        blocks.append(_snappy_block(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


def _snappy_block(data: bytes) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > _MOST:
        raise LogError(ErrorCode.corrupt_message, f"more than {_MOST} bytes in one batch")
    return bytes(cramjam.snappy.decompress_raw(data))


_COMPRESS: dict[int, Callable[[bytes, int | None], bytes]] = {
    GZIP: _gzip,
    SNAPPY: _to_xerial,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: _bounded(cramjam.gzip.decompress_into),
    SNAPPY: _from_snappy,
    LZ4: _bounded(cramjam.lz4.decompress_into),
    ZSTD: _bounded(cramjam.zstd.decompress_into),
}
