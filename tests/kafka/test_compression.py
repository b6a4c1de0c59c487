"""Promise: what a codec compressed is decompressed unchanged, in both framings of snappy, and nothing else is."""

from __future__ import annotations

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.compression import CODECS, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress, decompressed
from penstock.kafka.errors import ProtocolError

LARGE = 3 << 20  # more than the buffer that a thread reuses


@settings(max_examples=50)
@given(st.binary(max_size=5_000), st.sampled_from(sorted(CODECS.values())))
def test_data_comes_back_unchanged(data: bytes, codec: int) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    with decompressed(codec, packed) as body:
        assert bytes(body) == data


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_large_batch_comes_back_unchanged(codec: int) -> None:
    data = bytes(range(256)) * (LARGE // 256)
    assert decompress(codec, compress(codec, data)) == data


def test_snappy_without_the_xerial_framing_is_read_too() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(b"rain" * 9))) == b"rain" * 9


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_corrupt_data_is_a_protocol_error(codec: int) -> None:
    with pytest.raises(ProtocolError, match="cannot be decompressed"):
        decompress(codec, b"nonsense" * 9)


def test_an_unknown_codec_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="unknown compression codec 6"):
        decompress(6, b"")
