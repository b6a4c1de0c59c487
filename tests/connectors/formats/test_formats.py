from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.connectors.formats.csv.decoder import CsvDecoder
from penstock.connectors.formats.csv.header import header
from penstock.connectors.formats.json.decoder import JsonDecoder
from penstock.connectors.formats.parsers import guess_format, parser
from penstock.contracts import Rejected
from penstock.errors import BadSchema, BadValue
from penstock.schema import Schema

TRADES = Schema("symbol string not null, price double, size bigint, ts timestamp")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def parsed(format, schema, block, offset=0, columns=None):
    rows, bad = [], []
    for item in parser(format, Schema(schema), columns).parse(block, "f", offset):
        if isinstance(item, Rejected):
            bad.append(item)
        else:
            item.validate(full=True)
            assert item.schema == Schema(schema).nullable().arrow
            rows += item.to_pylist()
    return rows, bad


def test_csv_rows_are_typed_and_an_empty_field_is_null():
    rows, bad = parsed("csv", TRADES, b"A,1.5,3,2026-01-01T12:00:00Z\nB,,,\n")
    assert not bad
    assert rows == [
        {"symbol": "A", "price": 1.5, "size": 3, "ts": NOON},
        {"symbol": "B", "price": None, "size": None, "ts": None},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:00Z",
        "2026-01-01T14:00:00+02:00",
        "2026-01-01 12:00:00",
        "2026-01-01T12:00:00.000000",
    ],
)
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_time_has_a_zone_or_is_in_utc(format, text):
    block = f"{text}\n" if format == "csv" else json.dumps({"ts": text})
    assert parsed(format, "ts timestamp", block.encode()) == ([{"ts": NOON}], [])


def test_times_with_and_without_zone_may_be_mixed():
    rows, bad = parsed("csv", "ts timestamp", b"2026-01-01T12:00Z\n2026-01-01 12:00:00\n2026-01-01 1\n")
    assert [row["ts"] for row in rows] == [NOON, NOON]
    assert [row.position for row in bad] == ["f:38"]


def test_a_bad_value_is_rejected_with_its_column_its_bytes_and_its_place():
    rows, bad = parsed("csv", TRADES, b"A,1,2,\r\nB,1x,2,\r\nC,1,2,\r\n", offset=100)
    assert [row["symbol"] for row in rows] == ["A", "C"]
    assert bad == [Rejected("column price: '1x' cannot be read as double", b"B,1x,2,", "f:108")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"A,1,2", "expected 4 fields, got 3"),
        (b"A,1,2,,", "expected 4 fields, got 5"),
        (b",1,2,", "column symbol: null, but it is declared not null"),
        (b"\xff,1,2,", "not UTF-8: byte 0xff at 0"),
        (b"A,1,9223372036854775808,", "column size: '9223372036854775808' cannot be read as bigint"),
        (b"A,1,0x10,", "column size: '0x10' cannot be read as bigint"),
        (b"A,1,1.0,", "column size: '1.0' cannot be read as bigint"),
        (b"A,1,2,17672688", "column ts: '17672688' cannot be read as timestamp: a number that is a time has 9 or 10"),
        (b'"A,1,2,', "a quote is left open"),
        (b"A,1,\r2,", "a carriage return inside the line"),
    ],
)
def test_csv_line_is_rejected(line, reason):
    rows, bad = parsed("csv", TRADES, b"A,1,2,\n" + line + b"\nB,1,2,\n")
    assert [row["symbol"] for row in rows] == ["A", "B"]
    assert len(bad) == 1
    assert bad[0].reason.startswith(reason)
    assert (bad[0].raw, bad[0].position) == (line, "f:7")


def test_a_quoted_field_holds_commas_quotes_and_line_breaks():
    rows, bad = parsed("csv", "a string, b string", b'"x,""y""",1\n"x\ny",2\r\n"u\r\n\n,\rv",3\nz,""\n')
    assert rows == [
        {"a": 'x,"y"', "b": "1"},
        {"a": "x\ny", "b": "2"},
        {"a": "u\r\n\n,\rv", "b": "3"},
        {"a": "z", "b": ""},
    ]
    assert not bad


def test_a_lost_quote_costs_its_line_and_no_other():
    rows, bad = parsed("csv", "a string, b string", b'1,x\n"2,x\n3,"x\ny"\n4,5" pipe\n5,"x\n6,x\n7,"x""y"\n')
    assert rows == [{"a": "1", "b": "x"}, {"a": "3", "b": "x\ny"}, {"a": "6", "b": "x"}, {"a": "7", "b": 'x"y'}]
    assert [row.raw for row in bad] == [b'"2,x', b'4,5" pipe', b'5,"x']
    assert all(row.reason.startswith("a quote is left open") for row in bad)
    assert [row.position for row in bad] == ["f:4", "f:17", "f:27"]


def test_a_number_that_is_too_large_is_rejected_and_a_written_infinity_is_a_value():
    block = b"1e400,1\ninf,2\n-1e309,3\nInfinity,4\n1,1e39\n"
    rows, bad = parsed("csv", "d double, f float", block)
    assert [row["d"] for row in rows] == [float("inf"), float("inf")]
    assert [row.reason for row in bad] == [
        "column d: '1e400' cannot be read as double",
        "column d: '-1e309' cannot be read as double",
        "column f: '1e39' cannot be read as float",
    ]


def test_json_takes_nan_and_infinities_as_text_and_rejects_what_is_too_large():
    lines = [
        b'{"d": "NaN", "s": "NaN", "e": 0.1234567890123456789, "l": [1, "-Infinity"]}',
        b'{"d": "Infinity", "s": "Infinity"}',
        b'{"d": -Infinity}',
        b'{"d": 1e400}',
        b'{"f": 1e39}',
        b'{"d": "1"}',
        b'{"d": "NaN", "d": 1}',
    ]
    schema = "d double, f float, s string, e decimal(38,19), l array<double>"
    rows, bad = parsed("json", schema, b"\n".join(lines))
    assert str([row["d"] for row in rows]) == "[nan, inf, -inf]"
    assert [row["s"] for row in rows] == ["NaN", "Infinity", None]
    assert rows[0]["e"] == Decimal("0.1234567890123456789")
    assert rows[0]["l"] == [1, float("-inf")]
    assert [row.raw for row in bad] == lines[3:]
    many, bad = parsed("json", "f float", b"".join(b'{"f": %d.5}\n' % n for n in range(20_000)) + b'{"f": 1e39}\n')
    assert len(many) == 20_000
    assert len(bad) == 1


def test_words_for_nothing_are_values():
    rows, bad = parsed("csv", "s string, d double", b"NULL,NaN\nNaN,inf\n")
    assert [row["s"] for row in rows] == ["NULL", "NaN"]
    assert str([row["d"] for row in rows]) == "[nan, inf]"
    assert not bad


def test_blank_lines_are_skipped():
    assert parsed("csv", "a int, b int", b"\n1,2\n\n  \n3,4\n\n")[0] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert parsed("csv", "a string", b"x\n  \n\ny\n") == ([{"a": "x"}, {"a": "y"}], [])
    assert parsed("json", "a int", b'\n{"a":1}\n  \r\n\n{"a":2}') == ([{"a": 1}, {"a": 2}], [])


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_decimal_with_too_many_digits_is_rejected(format):
    lines = ["12345678.12", "123456789.1", "1.234"]
    block = "\n".join(lines if format == "csv" else [f'{{"d": {line}}}' for line in lines])
    rows, bad = parsed(format, "d decimal(10,2)", block.encode())
    assert rows == [{"d": Decimal("12345678.12")}]
    assert len(bad) == 2


def test_a_header_gives_the_order_and_extra_columns_are_ignored():
    columns = header(b"\xffx,price,symbol,x\r", Schema("symbol string, price double"), "f")
    rows, bad = parsed("csv", "symbol string, price double", b"?,1.5,A,!\n", columns=columns)
    assert rows == [{"symbol": "A", "price": 1.5}]
    assert not bad
    assert header(b"A,1.5", TRADES, "f") is None


def test_a_header_that_lacks_a_column_says_which_are_there():
    with pytest.raises(BadSchema, match=r"f\.csv: the header lacks size, ts; it has symbol, price"):
        header(b"symbol,price", TRADES, "f.csv")


def test_json_ignores_unknown_keys_and_a_missing_key_is_null():
    rows, bad = parsed("json", TRADES, b'{"symbol":"A","x":{"price":"?"},"size":9007199254740993}\n')
    assert rows == [{"symbol": "A", "price": None, "size": 9007199254740993, "ts": None}]
    assert not bad


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"null", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"symbol":"A"} {"symbol":"B"}', "not JSON"),
        (b'{"symbol":"A"} null', "not JSON"),
        (b'{"price":1}', "column symbol: null, but it is declared not null"),
        (b'{"symbol":"A","price":"1"}', 'column price: "1" cannot be read as double'),
        (b'{"symbol":"A","size":1.0}', "column size: 1.0 cannot be read as bigint"),
        (
            b'{"symbol":"A","ts":17672688}',
            "column ts: 17672688 cannot be read as timestamp: a number that is a time has",
        ),
        (b'{"symbol":"A","ts":"noon"}', 'column ts: "noon" cannot be read as timestamp'),
        (b'{"symbol":1}', "column symbol: 1 cannot be read as string"),
        (b'{"symbol":"A","symbol":"B"}', "column symbol: the key is there twice"),
        (b'{"symbol":"\xff"}', "not UTF-8: byte 0xff at 11"),
    ],
)
def test_json_line_is_rejected(line, reason):
    rows, bad = parsed("json", TRADES, b'{"symbol":"A"}\n' + line + b'\n{"symbol":"B"}\n')
    assert [row["symbol"] for row in rows] == ["A", "B"]
    assert len(bad) == 1
    assert bad[0].reason.startswith(reason)
    assert (bad[0].raw, bad[0].position) == (line, "f:15")


def test_json_document_over_two_lines_is_two_bad_lines():
    rows, bad = parsed("json", "a int, b int", b'{"a":1} {"a":2\n,"b":3}\n{"a":4}\n')
    assert rows == [{"a": 4, "b": None}]
    assert [row.position for row in bad] == ["f:0", "f:15"]


def test_json_holds_structs_arrays_and_dates():
    schema = "a array<struct<d:date,t:timestamp,n:decimal(5,2)>>"
    good = b'{"a":[{"d":"2026-01-01","t":"2026-01-01T12:00Z","n":1.25,"x":0},null]}'
    rows, bad = parsed("json", schema, good + b'\n{"a":[{"d":20454}]}\n{"a":{}}\n')
    item = {"d": NOON.date(), "t": NOON, "n": Decimal("1.25")}
    assert rows == [{"a": [item, None]}]
    assert len(bad) == 2


def test_text_keeps_every_line_and_rejects_other_encodings():
    rows, bad = parsed("text", "value string", b"a\r\n\n\xff\nb")
    assert rows == [{"value": "a"}, {"value": ""}, {"value": "b"}]
    assert [row.position for row in bad] == ["f:4"]


def test_types_that_a_format_cannot_hold_are_refused():
    with pytest.raises(BadSchema, match="csv cannot hold column 'a' of type array<int>"):
        parser("csv", Schema("a array<int>"))
    with pytest.raises(BadSchema, match="json cannot hold column 'a' of type array<map<array<int>,int>>"):
        parser("json", Schema("a array<map<array<int>,int>>"))
    with pytest.raises(BadSchema, match="json cannot hold column 'a' of type interval day to second"):
        parser("json", Schema("a interval day to second"))
    with pytest.raises(BadSchema, match="text has one string column"):
        parser("text", Schema("a int"))
    with pytest.raises(BadValue, match="format='xml' is not known"):
        parser("xml", TRADES)


def test_format_is_guessed_from_the_ending():
    assert [guess_format(f"a.{end}") for end in ("csv", "jsonl", "csv.gz", "parquet", "x")] == [
        *("csv", "json", "csv", "parquet"),
        None,
    ]


def one_by_one(decoder, lines):
    """The oracle: what the decoder alone says of each line."""
    rows = []
    for line in lines:
        try:
            line.decode()
            rows += decoder.decode(decoder.bare(line)).to_pylist()
        except (pa.ArrowInvalid, UnicodeDecodeError):
            continue
    return rows


def same(left, right):
    return repr(left) == repr(right)


ALL = """s string, i bigint, t tinyint, d double, b boolean, c decimal(6,2), y date, ts timestamp,
    n timestamp_ntz"""
NUMBERS = "1 -1 0 127 128 999999 12345.67 1.5 1e3 .5 5. +1 - 0x1F 0X1 NaN nan inf -Inf"
TIMES = "2026-01-01 T Z +02:00 -0500 10:02 :03 .123456 .1234567 2026-13-01 t z 1767268800 123 456 789"
PIECES = [
    *NUMBERS.split(),
    *TIMES.split(),
    *["true", "True", "TRUE", "false", "yes", "x", "é"],
    "",
    " ",
    "\t",
    '"',
    "\ufeff",
]
token = st.lists(st.sampled_from(PIECES), min_size=0, max_size=4).map("".join)
quoted = token.map(lambda text: '"' + text.replace('"', '""') + '"')
csv_line = st.lists(token | quoted, min_size=2, max_size=2).map(",".join)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(Schema(ALL).fields), st.lists(csv_line.map(str.encode), min_size=1, max_size=40))
def test_csv_block_gives_what_its_lines_give_one_by_one(field, lines):
    schema = Schema((field, Schema("z string").fields[0]))
    decoder = CsvDecoder(schema)
    assume(not decoder.records(b"\n".join(lines)))  # rows of several lines have tests of their own
    kept = [line for line in lines if line.strip()]
    rows, bad = parsed("csv", schema, b"\n".join(lines))
    assert same(rows, one_by_one(decoder, kept))
    assert len(rows) + len(bad) == len(kept)


json_value = st.one_of(
    token.map(json.dumps),
    st.sampled_from(["1", "-0", "1.0", "1e2", "127", "128", "9223372036854775808", "1e999", "NaN", "Inf"]),
    st.sampled_from(["0", "1767268800", "1767268800.5", "1767268800123", "-1767268800123456789", "1.7e9", "99999999"]),
    st.sampled_from(['"2026-01-01T10:02:03.1234567Z"', '"2026-01-01t10:02:03z"', '"2026-01-01\\u007410:02"']),
    st.sampled_from(
        [
            "-Infinity",
            "null",
            "true",
            "{}",
            "[]",
            "[1]",
            '{"a":1}',
            '{"1":1767268800}',
            '{"1":"NaN","01":2}',
            '"\\ud800"',
            '"\\u0041"',
            "01",
        ]
    ),
)
json_line = st.one_of(
    st.lists(st.tuples(st.sampled_from(["v", "w"]), json_value), max_size=2).map(
        lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}"
    ),
    st.lists(st.sampled_from(["{", "}", "{}", '{"v":1}', "null", ",", " ", '"v":', "1", "Inf"])).map("".join),
)


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(Schema(ALL).fields),
    st.sampled_from(["array<int>", "timestamp", "map<string,timestamp>", "map<int,double>"]),
    st.lists(json_line.map(str.encode), min_size=1, max_size=40),
)
def test_json_block_gives_what_its_lines_give_one_by_one(field, other, lines):
    schema = Schema({"v": field.type, "a": "array<struct<x:date>>", "w": other})
    decoder = JsonDecoder(schema)
    kept = [line for line in lines if line.strip(b" ")]
    rows, bad = parsed("json", schema, b"\n".join(lines))
    assert same(rows, one_by_one(decoder, kept))
    assert len(rows) + len(bad) == len(kept)


def test_few_bad_lines_in_a_large_block_are_found_and_order_is_kept():
    lines = [f"{n},{n}" for n in range(20_000)]
    for n in (0, 5_000, 19_999):
        lines[n] = f"{n},x"
    rows, bad = parsed("csv", "a bigint, b bigint", "\n".join(lines).encode())
    assert [row.raw for row in bad] == [b"0,x", b"5000,x", b"19999,x"]
    assert [row["a"] for row in rows] == [n for n in range(20_000) if n not in (0, 5_000, 19_999)]
