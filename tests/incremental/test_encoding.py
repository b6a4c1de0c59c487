"""Promise: what was encoded is decoded, and every damaged byte is found and named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadSchema, FrameDamaged
from penstock.incremental.deltas import Deltas, set_rows
from penstock.incremental.encoding import decode, decode_all, encode
from penstock.incremental.zsets import consolidate, content, from_rows
from tests.incremental.edge_values import columns, contents, law, row, table

ROWS = pa.table({"k": ["a", "b"], "x": [1.0, None]})


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(columns())
    return table(kinds, draw(st.lists(row(kinds), max_size=10)))


@law
@given(tables())
def test_a_zset_comes_back(rows: pa.Table) -> None:
    zset = from_rows(rows, -2)
    found = decode(encode(zset))
    assert isinstance(found, pa.Table)
    assert found.schema.equals(zset.schema)
    assert contents(found) == contents(zset)


@law
@given(tables())
def test_the_same_content_is_encoded_to_the_same_bytes(rows: pa.Table) -> None:
    one, other = from_rows(rows), from_rows(rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64())))
    assert content(one) == content(other)
    assert encode(consolidate(one)) == encode(consolidate(other))


@law
@given(tables(), st.integers(0, 2**62))
def test_deltas_come_back_with_their_key(rows: pa.Table, sequence: int) -> None:
    deltas = set_rows(rows, ["c0"], sequence)
    found = decode(encode(deltas))
    assert isinstance(found, Deltas)
    assert found.key == ("c0",)
    assert contents(found.table) == contents(deltas.table)
    assert found.patched.tolist() == deltas.patched.tolist()


def test_frames_can_stand_one_after_the_other() -> None:
    parts: list[Any] = [set_rows(ROWS, ["k"], 1), from_rows(ROWS), set_rows(ROWS.slice(0, 0), ["k"], 2)]
    found = list(decode_all(b"".join(map(encode, parts))))
    assert [type(one) for one in found] == [Deltas, pa.Table, Deltas]
    assert list(decode_all(b"")) == []


def test_every_changed_byte_is_found() -> None:
    whole = encode(set_rows(ROWS, ["k"], 1))
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        with pytest.raises(FrameDamaged, match="frame 0 at byte 0"):
            decode(bytes(damaged))


def test_every_cut_is_found() -> None:
    whole = encode(set_rows(ROWS, ["k"], 1))
    for size in range(1, len(whole)):
        with pytest.raises(FrameDamaged, match="ends"):
            decode(whole[:size])


def test_damage_names_the_frame_and_what_is_wrong() -> None:
    frame = encode(set_rows(ROWS, ["k"], 1))
    damaged = bytearray(frame + frame)
    damaged[-1] ^= 1
    found = decode_all(bytes(damaged))
    assert isinstance(next(found), Deltas)
    with pytest.raises(FrameDamaged, match=f"frame 1 at byte {len(frame)} has the checksum .* instead of"):
        next(found)
    with pytest.raises(FrameDamaged, match="starts with b'oops' instead of b'PSD1'"):
        decode(b"oops" + frame[4:])
    with pytest.raises(FrameDamaged, match="expected one frame, found 2"):
        decode(frame + frame)


def test_only_zsets_and_deltas_are_encoded() -> None:
    with pytest.raises(BadSchema, match="not a Z-set"):
        encode(ROWS)
