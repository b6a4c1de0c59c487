"""Promise: lines of one layout that are split in bulk are what the parser reads."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.formats.json.decoder import JsonDecoder
from penstock.schema import Schema
from tests.connectors.formats.test_formats import ALL, NOON, TRADES, json_value, parsed, same

plain_value = st.one_of(
    json_value,
    st.sampled_from(["0", "7", "-3", "12", "2.5", "-0.5", "1e5", "2E-3", "3.", "4.e1", "+5", "-", "00", "0x1", ""]),
    st.sampled_from(['"2026-01-01T10:02:03Z"', '"2026-01-01 10:02:03"', '"2026-01-01"', '"1.25"', '"é"', "false"]),
)
DAMAGE = st.lists(st.tuples(st.integers(0, 400), st.sampled_from([*'"\\{}[]:, \n\r\t\x00v0', "é"])), max_size=2)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(Schema(ALL).fields),
    st.sampled_from(['{{"v":{},"z":{}}}', '{{"z": {}, "v": {}}}', '{{"v":{}}}\r', '{{"w":{}, "v" :{} }}']),
    st.lists(st.tuples(plain_value, plain_value), min_size=1, max_size=3),
    st.integers(1, 5),
    DAMAGE,
)
def test_json_lines_that_are_taken_apart_by_their_layout_are_what_the_parser_reads(field, form, pairs, times, damage):
    lines = [form.format(*pair) for pair in pairs] * times
    text = "\n".join(lines) + "\n"
    for at, put in damage:
        text = text[:at] + put + text[at + 1 :]
    decoder = JsonDecoder(Schema({"v": field.type, "z": "string", "missing": "array<int>"}))
    try:
        found = decoder._alike.rows(text.encode())
    except pa.ArrowInvalid as error:
        # Only the parser raises.
        with pytest.raises(type(error)):
            decoder._parsed(text.encode())
        return
    if found is not None:
        found.validate(full=True)
        assert same(found.to_pylist(), decoder._parsed(text.encode()).to_pylist())


def test_alike_lines_are_taken_apart_and_a_bad_one_among_them_is_found():
    form = '{{"symbol": "S{0}", "price": {0}.5, "extra": -{0}, "size": {0}, "ts": "2026-01-01T12:00:00Z"}}'
    lines = [form.format(n) for n in range(3_000)]
    decoder = JsonDecoder(TRADES)
    alike = decoder._alike.rows("\n".join(lines).encode())
    assert alike is not None
    assert alike.slice(7, 1).to_pylist() == [{"symbol": "S7", "price": 7.5, "size": 7, "ts": NOON}]
    lines[5] = lines[5].replace(":", " ", 1)
    lines[2_999] = lines[2_999].replace('"size": 2999', '"size": "2999"')
    rows, bad = parsed("json", TRADES, "\n".join(lines).encode())
    assert [row["size"] for row in rows] == [n for n in range(3_000) if n not in (5, 2_999)]
    assert [row.raw.decode() for row in bad] == [lines[5], lines[2_999]]


def test_lines_with_another_layout_among_alike_ones_are_read_in_their_place():
    form = '{{"symbol":"S{0}","price":{0}.5,"size":{0},"ts":"2026-01-01T12:00:00Z"}}'
    lines = [form.format(n) for n in range(1, 2_000)]
    lines[3] = '{"size":4,"symbol":"S4"}'
    lines[700] = '{"symbol":"\\u0053701","price":null,"size":701,"ts":null}'
    lines[701] = '{"symbol":"S702","price":null,"size":702,"ts":"2026-01-01T12:00:00Z"}'
    decoder = JsonDecoder(TRADES)
    rows = decoder._alike.rows("\n".join(lines).encode())
    assert rows is not None
    assert rows.equals(decoder._parsed("\n".join(lines).encode()))
    assert rows.column("symbol").to_pylist() == [f"S{n}" for n in range(1, 2_000)]
