"""Files that are damaged, cut short or still being written: no row vanishes, and what fails says what to do."""

from __future__ import annotations

import gzip
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.csv.decoder import CsvDecoder
from penstock.connectors.formats.json.decoder import DEEPEST
from penstock.connectors.formats.lines import BLOCK, KEPT, LONGEST
from penstock.connectors.formats.parsers import parser
from penstock.contracts import Rejected
from penstock.errors import SourceFailed
from penstock.schema import Schema

PAIRS = Schema("a bigint, b string")
ROWS = {"csv": b"1,x\n", "json": b'{"a":1,"b":"x"}\n', "text": b"1,x\n"}
ENDS = {"csv": "csv", "json": "jsonl", "text": "log"}


def read(path, format=None, parallelism=1):
    source = FileSource(str(path), PAIRS if format != "text" else None, format)
    return read_rest(source, source.latest({}, None), parallelism)


def read_rest(source, end, parallelism=1):
    items = [item for split in source.splits({}, end, parallelism) for item in source.read_split(split)]
    batches = [item for item in items if not isinstance(item, Rejected)]
    return sum(batch.num_rows for batch in batches), [item for item in items if isinstance(item, Rejected)]


def test_a_line_that_was_still_being_written_is_set_aside_unless_only_its_line_feed_was_missing(tmp_path):
    for more, rows, torn in [("4,y\n", 1, [b"2,3"]), ("\n3,z\n", 2, []), ("", 2, [])]:
        path = tmp_path / "in.csv"
        path.write_text("1,x\n2,3")
        source = FileSource(str(path), PAIRS)
        end = source.latest({}, None)
        path.write_text("1,x\n2,3" + more)
        found, bad = read_rest(source, end)
        assert (found, [item.raw for item in bad]) == (rows, torn)
        assert all(item.position == f"{path}:4" for item in bad)


def test_a_file_that_shrinks_while_it_is_read_fails_by_name(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(ROWS["csv"] * (BLOCK // 2))
    source = FileSource(str(path), PAIRS)
    (split,) = source.splits({}, source.latest({}, None), 1)
    rows = source.read_split(split)
    next(rows)
    os.truncate(path, BLOCK + 100)
    with pytest.raises(
        SourceFailed, match=r"in\.csv became shorter after it was found(.|\n)*rename it into the folder"
    ):
        list(rows)


def test_a_parquet_file_that_was_written_again_fails_by_name(tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": range(9), "b": ["x"] * 9}), path, row_group_size=3)
    source = FileSource(str(path), PAIRS)
    end = source.latest({}, None)
    pq.write_table(pa.table({"a": range(2), "b": ["x"] * 2}), path)
    with pytest.raises(SourceFailed, match=r"in\.parquet changed after it was found"):
        read_rest(source, end)


@pytest.mark.parametrize(("format", "packed"), [("csv", False), ("json", True), ("text", False)])
def test_a_line_that_is_too_long_is_set_aside_with_its_beginning(tmp_path, format, packed):
    row, most = ROWS[format], LONGEST - 1
    text = row + b"x" * (LONGEST + BLOCK) + b"\n" + row + b"y" * most + b"\n" + row + b"z" * LONGEST + b"\n" + row
    path = tmp_path / f"in.{ENDS[format]}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    rows, bad = read(path, format, parallelism=3)
    # As a text, a line that is just short enough is a row.
    assert rows + len(bad) == 7
    long = [item for item in bad if "is the most" in item.reason]
    assert [item.raw for item in long] == [b"x" * KEPT, b"z" * KEPT]
    assert [item.position for item in long] == [f"{path}:{text.index(byte * 99)}" for byte in (b"x", b"z")]
    assert f"a line of {LONGEST + BLOCK + 1} bytes" in long[0].reason


@pytest.mark.parametrize("deep", ["[", '{"a":'])
def test_json_may_nest_only_so_deep_and_brackets_in_texts_do_not_count(deep):
    shut = {"[": "]", '{"a":': "}"}[deep]

    def nested(levels):
        return '{"b":' + deep * (levels - 1) + "1" + shut * (levels - 1) + "}"

    texts = [nested(DEEPEST), nested(DEEPEST + 1), nested(200_000), '{"a":1,"b":"' + deep[0] * 5_000 + '"}']
    items = list(parser("json", Schema("a bigint")).parse("\n".join(texts).encode(), "f"))
    rows = [row for item in items if not isinstance(item, Rejected) for row in item.to_pylist()]
    assert rows == [{"a": None}, {"a": 1}]
    bad = [item for item in items if isinstance(item, Rejected)]
    assert [item.reason for item in bad] == [f"nested deeper than {DEEPEST} levels"] * 2
    assert [item.raw.decode() for item in bad] == texts[1:3]


@pytest.mark.parametrize("damage", ["cut", "changed", "checksum", "not gzip"])
def test_a_damaged_gzip_file_fails_by_name_instead_of_giving_what_it_can(tmp_path, damage):
    packed = bytearray(gzip.compress(b"".join(b"%d,x%d\n" % (n, n * 7919) for n in range(50_000))))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    elif damage == "changed":
        packed[len(packed) // 2 : len(packed) // 2 + 50] = b"\0" * 50
    elif damage == "checksum":
        packed[-8] ^= 1
    else:
        packed = bytearray(b"1,x\n")
    path = tmp_path / "in.csv.gz"
    path.write_bytes(packed)
    with pytest.raises(SourceFailed, match=r"in\.csv\.gz cannot be read"):
        read(path)


def test_a_damaged_parquet_file_gives_all_rows_or_fails_by_name(tmp_path):
    path, choice = tmp_path / "in.parquet", random.Random(5)
    pq.write_table(pa.table({"a": range(300), "b": [f"é{n % 40}" for n in range(300)]}), path, row_group_size=100)
    whole = path.read_bytes()
    failed = []
    for _ in range(150):
        at = choice.randrange(len(whole))
        path.write_bytes(whole[:at] + choice.randbytes(3) + whole[at + 3 :])
        try:
            rows, bad = read(path)
        except SourceFailed as error:
            failed.append(str(error))
        else:
            assert rows + len(bad) == 300
    assert failed
    assert all("in.parquet" in error for error in failed)


def test_parquet_text_that_is_not_utf8_is_set_aside_with_its_bytes(tmp_path):
    garbled = pa.array([b"x", b"\xffy", None], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": [1, 2, 3], "b": garbled}), tmp_path / "in.parquet")
    rows, [bad] = read(tmp_path / "in.parquet")
    assert rows == 2
    assert bad == Rejected(
        "column b: not UTF-8: byte 0xff at 0", rb'{"a": 2, "b": "\\xffy"}', f"{tmp_path}/in.parquet:1"
    )


GOOD = {
    "csv": [b'"a,b",-3,1e3,true,2026-01-01 10:00:00', b"x,1,2.5,false,2026-01-01T00:00:00Z"],
    "json": [
        b'{"s":"x","i":1,"d":2.5,"b":true,"t":"2026-01-01T00:00:00Z"}',
        b'{"s":null,"m":{"p":1,"q":[{"x":"\xc3\xa9"}]},"i":-7}',
    ],
    "text": [b"hello", b"", b"\xc3\xa9"],
}
DECLARED = {
    "csv": "s string, i bigint, d double, b boolean, t timestamp",
    "json": "s string, i bigint, d double, b boolean, t timestamp, m struct<p:double,q:array<struct<x:string>>>",
    "text": "value string",
}
NOISE = [
    *(b'"', b'""', b",", b"\\", b"{", b"}", b"[", b"]", b":", b"\r", b"\n", b"\0", b"\t", b" ", b"-"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\xef\xbb\xbf", b"\x0b", b"\x85"),
    *(b"null", b"NaN", b"Inf", b"1e999", b"9" * 30, b"0x1F", b"1.", b"[[[["),
]


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(sorted(GOOD)),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 3]), st.sampled_from(NOISE)), max_size=5),
)
def test_each_line_is_a_row_or_set_aside_with_its_bytes_its_place_and_a_reason(format, picks, noise):
    text = b"\n".join(GOOD[format][n % len(GOOD[format])] for n in picks) + b"\n"
    for at, gone, put in noise:
        text = text[:at] + put + text[at + gone :]
    # A row of several lines, which a line break between quotes makes, has tests of its own.
    assume(format != "csv" or not CsvDecoder(Schema(DECLARED["csv"])).records(text))
    rows, bad = 0, []
    for item in parser(format, Schema(DECLARED[format])).parse(text, "f"):
        if isinstance(item, Rejected):
            bad.append(item)
        else:
            item.validate(full=True)
            rows += item.num_rows
    lines = text.removesuffix(b"\n").split(b"\n")
    space = {"csv": None, "json": b" \t\r"}
    assert rows + len(bad) == sum(format == "text" or bool(line.strip(space[format])) for line in lines)
    for item in bad:
        at = int(item.position.split(":")[1])
        assert text[at:].startswith(item.raw)
        assert item.reason
