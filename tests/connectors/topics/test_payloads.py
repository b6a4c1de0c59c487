"""Payloads of records: the same rules and reasons as lines of a file, and each bad one with its place."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.topics.payloads import RECORDS, Payloads, payloads, row_schema
from penstock.contracts import Rejected
from penstock.errors import BadSchema, BadValue
from penstock.schema import Schema

PAIRS = Schema("a bigint not null, b string")


def records(*values, first=0):
    rows = [
        {"offset": first + n, "value": value, "key": b"k%d" % n, "partition": 3, "timestamp": 0, "headers": []}
        for n, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORDS)


def read(batch, format="json", schema=PAIRS, include=()):
    made = Payloads("t", row_schema("t", schema, format, include), format, include)
    items = list(made.rows(batch))
    good = [row for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]
    return good, [item for item in items if isinstance(item, Rejected)]


def test_each_payload_is_a_row_or_rejected_with_its_place():
    good, bad = read(records(b'{"a":1,"b":"x"}', b"{", b'{"a":2}', b'{"b":"y"}', b"", None, b'{"a":"z"}', first=7))
    assert good == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert [item.position for item in bad] == ["t/3@8", "t/3@10", "t/3@11", "t/3@12", "t/3@13"]
    assert [item.raw for item in bad] == [b"{", b'{"b":"y"}', b"", b"", b'{"a":"z"}']
    assert bad[1].reason == "column a: null, but it is declared not null"
    assert bad[2].reason == "an empty payload"
    assert bad[3].reason == "no payload: a tombstone"
    assert bad[4].reason == 'column a: "z" cannot be read as bigint'


def test_a_document_may_have_many_lines_but_not_its_texts():
    good, bad = read(records(b'{\n  "a": 1\n}\n', b'{"a":2,"b":"x\ny"}', b'{"a":3}\n{"a":4}', b'{"a":5}'))
    assert [row["a"] for row in good] == [1, 5]
    assert len(bad) == 2


def test_two_documents_in_one_payload_do_not_hide_an_empty_one():
    good, bad = read(records(b'{"a":1}\n{"a":2}', b""))
    assert not good
    assert len(bad) == 2


def test_csv_payloads_are_a_line_each():
    good, bad = read(records(b"1,x", b"2,y\r\n", b"3,x\n4,y", b'5,"a,b"', b"6"), "csv")
    assert [row["a"] for row in good] == [1, 2, 5]
    assert [item.position for item in bad] == ["t/3@2", "t/3@4"]


@pytest.mark.parametrize("beside", [[], [b"1,x"], [b'1,"x\ny"'], [b"1,"]])
def test_two_csv_payloads_with_a_quote_left_open_are_not_one_row(beside):
    good, bad = read(records(*beside, b'2,"a', b'b"'), "csv")
    assert [row["a"] for row in good] == [1] * len(beside)
    assert [item.raw for item in bad] == [b'2,"a', b'b"']
    assert all("a quote is left open" in item.reason for item in bad)


def test_what_is_included_stays_beside_its_payload():
    included = ("key", "offset", "timestamp", "headers", "partition")
    good, _ = read(records(b"{", b'{"a":1}', b"{", b'{"a":2}'), include=included)
    assert [(row["a"], row["_key"], row["_offset"]) for row in good] == [(1, b"k1", 1), (2, b"k3", 3)]
    assert good[0]["_timestamp"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert good[0]["_partition"] == 3


def test_raw_payloads_are_bytes_or_text():
    assert read(records(b"\xff", None), "raw", None)[0] == [{"value": b"\xff"}, {"value": None}]
    good, bad = read(records(b"x", b"\xff", "ä".encode()), "raw", Schema("v string not null"))
    assert good == [{"v": "x"}, {"v": "ä"}]
    assert bad == [Rejected("not UTF-8: byte 0xff at 0", b"\xff", "t/3@1")]


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_formats_of_the_registry_say_that_they_come_with_it(format):
    with pytest.raises(BadValue, match="comes with the schema registry"):
        row_schema("t", PAIRS, format, ())


def test_what_cannot_be_read_is_refused_with_the_choices():
    with pytest.raises(BadValue, match="did you mean 'json'"):
        row_schema("t", PAIRS, "jsn", ())
    with pytest.raises(BadValue, match="did you mean 'offset'"):
        row_schema("t", PAIRS, "json", ("offst",))
    with pytest.raises(BadSchema, match="json needs a schema"):
        row_schema("t", None, "json", ())
    with pytest.raises(BadSchema, match="one column"):
        row_schema("t", PAIRS, "raw", ())
    with pytest.raises(BadSchema, match="'_key' occurs twice"):
        row_schema("t", Schema("_key binary"), "json", ("key",))


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b'{"a":1}', b'{"a":2}\n', b"{}\n{}"]))))
def test_no_payload_is_lost(values):
    good, bad = read(records(*values))
    assert len(good) + len(bad) == len(values)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8", exclude_characters="\r\n"))),
        min_size=1,
    ),
    st.sampled_from(["json", "csv"]),
)
def test_what_is_written_is_read_back(rows, format):
    batch = pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in rows], schema=PAIRS.arrow)
    written = [value.encode() if isinstance(value, str) else value for value in payloads(batch, format)]
    assert read(records(*written), format) == (batch.to_pylist(), [])


def test_bytes_are_written_to_json_in_base64():
    batch = pa.RecordBatch.from_pylist([{"raw": b"\xff"}, {"raw": None}])
    assert [json.loads(text) for text in payloads(batch, "json")] == [{"raw": "/w=="}, {"raw": None}]
