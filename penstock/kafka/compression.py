"""The codecs of record batches (gzip, snappy, lz4, zstd), as Kafka's clients write and read them."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import cramjam

from penstock.kafka.batches import Bytes
from penstock.kafka.errors import CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION, ProtocolError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"uncompressed": 0, "zstd": ZSTD, "lz4": LZ4, "snappy": SNAPPY, "gzip": GZIP}
_LZ4_FAST = 9  # the default of compression.lz4.level, for which Kafka too takes the fast mode, which has no levels
_MOST = 256 << 20  # bytes of one batch: a megabyte of zstd can hold gigabytes
_LARGE = 32 << 20  # of batches that hold more than this, only one is open at a time
_PIECE = 1 << 20
_USUAL = 2 << 20  # bytes that nearly every batch fits in
_one_large = threading.Lock()
DecompressInto = Callable[[Any, Any], int]
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 << 10


class _Buffer(threading.local):
    """Memory that a thread decompresses into again and again: fresh memory costs as much as decompressing."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(_USUAL))


_buffer = _Buffer()


class Codec(NamedTuple):
    """How a topic compresses its records: the number of the codec, and its level, None where it has none."""

    number: int
    level: int | None = None


def compress(codec: int, data: Bytes, level: int | None = None) -> Bytes:
    """Return data compressed with a codec."""
    return _COMPRESS[codec](data, level) if codec else data


def decompress(codec: int, data: Bytes) -> bytes:
    """Return the records of a batch as they were before compression; raises ProtocolError if that fails."""
    decompress_into = _DECOMPRESS.get(codec)
    if decompress_into is not None:
        # Larger than usual, or corrupt: the second try finds out.
        with suppress(cramjam.DecompressionError):
            return bytes(_buffer.memory[: decompress_into(data, _buffer.memory)])
    with decompressed(codec, data) as body:
        return bytes(body)


@contextmanager
def decompressed(codec: int, data: Bytes) -> Iterator[Bytes]:
    """Lend the decompressed records of a batch without copying them; raises ProtocolError if that fails."""
    if not codec:
        yield data
    elif codec == SNAPPY:
        yield _from_snappy(data)
    elif codec in _DECOMPRESS:
        with _large_or_small(_DECOMPRESS[codec], data) as body:
            yield body
    else:
        raise ProtocolError(UNSUPPORTED_COMPRESSION, f"unknown compression codec {codec}")


@contextmanager
def _large_or_small(decompress_into: DecompressInto, data: Bytes) -> Iterator[memoryview]:
    # A buffer is freed with the last view of it; the system allocates pages only when they are written.
    body = _small(decompress_into, data)
    if body is not None:
        yield body
        return
    with _one_large:
        with _translated_errors():
            buffer = mmap.mmap(-1, _MOST)
            body = memoryview(buffer)[: decompress_into(data, buffer)]
        yield body


def _small(decompress_into: DecompressInto, data: Bytes) -> memoryview | None:
    """Return the records unless they are large or corrupt: the second try finds out which."""
    buffer = mmap.mmap(-1, _LARGE)
    try:
        return memoryview(buffer)[: decompress_into(data, buffer)]
    except cramjam.DecompressionError:
        return None


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except cramjam.DecompressionError as error:
        raise ProtocolError(CORRUPT_MESSAGE, f"the records cannot be decompressed: {error}") from error


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
    # Java clients read snappy only in the xerial framing; the others read both.
    blocks = [_XERIAL]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        blocks += [len(block).to_bytes(4), block]
    return b"".join(blocks)


def _from_snappy(data: Bytes) -> bytes:
    with _translated_errors():
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
        raise ProtocolError(CORRUPT_MESSAGE, f"more than {_MOST} bytes in one batch")
    return bytes(cramjam.snappy.decompress_raw(data))


_COMPRESS: dict[int, Callable[[Bytes, int | None], bytes]] = {
    GZIP: _gzip,
    SNAPPY: _to_xerial,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESS: dict[int, DecompressInto] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
