"""Promise: how a csv file is written can be said, and an error says what was assumed."""

from __future__ import annotations

import csv
import gzip
import io
import itertools

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.catalog import sink_from_spec, source_from_spec
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.stdin import StdinSource
from penstock.connectors.formats.csv import records as csv_records
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.csv.records import CsvRecords
from penstock.connectors.formats.lines import read_lines
from penstock.connectors.formats.parsers import parser
from penstock.connectors.formats.writers import open_writer
from penstock.contracts import Rejected
from penstock.errors import BadSchema, BadValue, SinkFailed
from penstock.schema import Schema
from penstock.sinks import files

PAIRS = Schema("a bigint, b string")


def read(path, schema=PAIRS, **options):
    source = FileSource(str(path), schema, "csv", options=CsvOptions(**options))
    items = [item for split in source.splits({}, source.latest({}, None), 3) for item in source.read_split(split)]
    rows = [row for item in items if not isinstance(item, Rejected) for row in item.to_pylist()]
    return rows, [item for item in items if isinstance(item, Rejected)]


def put(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_carriage_return_in_the_first_line_is_a_bad_row_and_the_others_are_read(tmp_path):
    rows, bad = read(put(tmp_path / "in.csv", "1,x\ry\n2,z\n"))
    assert rows == [{"a": 2, "b": "z"}]
    assert bad[0].position == f"{tmp_path}/in.csv:0"
    assert bad[0].reason.startswith("a carriage return inside the line (the first line, read as a row")
    assert 'header="auto"' in bad[0].reason


def test_a_file_with_bare_carriage_returns_for_line_ends_is_refused_by_its_name(tmp_path):
    with pytest.raises(BadSchema, match=r"in\.csv: the header lacks b(.|\n)*carriage returns inside"):
        read(put(tmp_path / "in.csv", "a,b\r1,x\r2,y\r"))


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("header", ["", "a,b\n"])
def test_a_field_over_128_kib_in_the_first_line_is_read(tmp_path, header, quote):
    long = "x" * (200 << 10)
    rows, bad = read(put(tmp_path / "in.csv", f"{header}1,{quote}{long}{quote}\n2,y\n"))
    assert [(row["a"], len(row["b"])) for row in rows] == [(1, len(long)), (2, 1)]
    assert not bad


def test_a_name_over_128_kib_in_the_header_is_no_obstacle(tmp_path):
    rows, _ = read(put(tmp_path / "in.csv", f'a,"{"y" * (200 << 10)}",b\n1,?,x\n'))
    assert rows == [{"a": 1, "b": "x"}]


def test_header_false_reads_a_first_line_that_names_columns_as_a_row(tmp_path):
    path = put(tmp_path / "in.csv", "a,b\n1,x\n")
    words = Schema("a string, b string")
    assert read(path, words)[0] == [{"a": "1", "b": "x"}]
    assert read(path, words, header=False)[0] == [{"a": "a", "b": "b"}, {"a": "1", "b": "x"}]
    rows, bad = read(path, header=False)
    assert rows == [{"a": 1, "b": "x"}]
    assert bad[0].reason == "column a: 'a' cannot be read as bigint (the first line, read as a row: header=False)"


def test_header_true_refuses_a_first_line_that_names_no_column(tmp_path):
    path = put(tmp_path / "in.csv", "1,x\n2,y\n")
    assert read(path)[0] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    with pytest.raises(BadSchema, match=r"in\.csv: the header lacks a, b; it has 1, x\n.*header=True"):
        read(path, header=True)


def test_a_guessed_header_that_lacks_a_column_says_that_it_was_guessed(tmp_path):
    path = put(tmp_path / "in.csv", "1,b\n2,c\n")
    with pytest.raises(BadSchema, match=r'header="auto", and the line names b(.|\n)*pass header=False'):
        read(path)
    assert read(path, header=False)[0] == [{"a": 1, "b": "b"}, {"a": 2, "b": "c"}]


def test_a_wrong_delimiter_shows_in_the_error(tmp_path):
    with pytest.raises(BadSchema, match=r"delimiter=','"):
        read(put(tmp_path / "in.csv", "a;b\n1;x\n"), header=True)


def test_names_in_a_header_may_hold_line_breaks_and_delimiters(tmp_path):
    names = Schema("""`a"b` bigint, `c,d` string""")
    path = put(tmp_path / "in.csv", '"c,d","of\nno use","a""b"\nx,7,1\n')
    assert read(path, names)[0] == [{'a"b': 1, "c,d": "x"}]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delimiter": ";"}, '1;"x;y"\n2;NULL\n3;\n'),
        ({"delimiter": "\t"}, '1\t"x;y"\n2\tNULL\n3\t\n'),
        ({"delimiter": "|", "quote": "'"}, "1|'x;y'\n2|NULL\n3|\n"),
        ({"delimiter": ";", "escape": "\\"}, '1;"x\\;y"\n2;NULL\n3;\n'),
        ({"delimiter": ";", "escape": "\\"}, "1;x\\;y\n2;NULL\n3;\n"),
        ({"quote": None}, "1,x;y\n2,NULL\n3,\n"),
        ({"delimiter": " "}, '1 "x;y"\n2 NULL\n3 \n'),
    ],
)
def test_delimiter_quote_and_escape_are_the_ones_that_were_given(tmp_path, options, text):
    rows, bad = read(put(tmp_path / "in.csv", text), **options)
    assert [row["b"] for row in rows] == ["x;y", "NULL", None]
    assert not bad


def test_without_quotes_a_quote_is_a_character_like_any_other(tmp_path):
    rows, bad = read(put(tmp_path / "in.csv", '1,5" pipe\n2,"x\n3,y"\n'), quote=None)
    assert [row["b"] for row in rows] == ['5" pipe', '"x', 'y"']
    assert not bad


def test_an_escaped_quote_is_no_end_of_a_field(tmp_path):
    rows, bad = read(put(tmp_path / "in.csv", '1,"x\\"\ny"\n2,"z\\\\"\n3,q\\\n4,r\n'), escape="\\")
    assert [row["b"] for row in rows] == ['x"\ny', "z\\", "r"]
    assert [row.reason for row in bad] == ["an escape character at the end of the line"]


def test_the_null_text_is_null_unless_it_is_quoted(tmp_path):
    rows, _ = read(put(tmp_path / "in.csv", '\\N,x\n1,\\N\n2,"\\N"\n3,\n4,""\n'), null="\\N")
    assert [(row["a"], row["b"]) for row in rows] == [(None, "x"), (1, None), (2, "\\N"), (3, None), (4, "")]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "shift_jis"])
@pytest.mark.parametrize("packed", [False, True])
def test_other_encodings_are_read_also_compressed(tmp_path, encoding, packed):
    word = "テ" if encoding == "shift_jis" else "größe"
    data = "".join(f'{n},"{word}\n{n}"\n' for n in range(5000)).encode(encoding)
    path = tmp_path / ("in.csv.gz" if packed else "in.csv")
    rows, bad = read(put(path, gzip.compress(data) if packed else data), encoding=encoding)
    assert [row["b"] for row in rows] == [f"{word}\n{n}" for n in range(5000)]
    assert not bad


def test_bytes_that_are_no_text_in_the_encoding_reject_their_line(tmp_path):
    rows, bad = read(put(tmp_path / "in.csv", b"1,x\n2,\x81\n3,\xe9\n"), encoding="cp1252")
    assert [row["b"] for row in rows] == ["x", "é"]
    assert [row.reason for row in bad] == ["not cp1252: invalid bytes"]


def test_a_row_of_nulls_between_tabs_is_a_row(tmp_path):
    assert read(put(tmp_path / "in.csv", "1\tx\n\t\n\n2\ty\n"), delimiter="\t")[0] == [
        {"a": 1, "b": "x"},
        {"a": None, "b": None},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ";;"},
        {"delimiter": "\n"},
        {"delimiter": "é"},
        {"quote": ","},
        {"escape": ","},
        {"header": "yes"},
        {"null": "a,b"},
        {"encoding": "klingon"},
        {"encoding": "base64"},
    ],
)
def test_options_that_cannot_be_read_back_are_refused_when_built(options):
    with pytest.raises(BadValue, match=f"csv: {next(iter(options))}=.* cannot be used"):
        ps.read_files("in.csv", schema="a bigint", **options)


def test_options_of_csv_are_refused_for_other_formats():
    with pytest.raises(BadValue, match="delimiter= has no effect on json"):
        ps.read_files("in.json", schema="a bigint", delimiter=";")
    with pytest.raises(BadValue, match="null= has no effect on parquet"):
        ps.files("out", null="NA")
    assert ps.read_files("in.json", schema="a bigint", encoding="latin-1").schema == Schema("a bigint")


def test_the_sink_refuses_a_dialect_that_it_could_not_write():
    for options in ({"delimiter": "."}, {"delimiter": "e"}, {"quote": ""}):
        with pytest.raises(BadValue, match="cannot be used"):
            ps.files("out", format="csv", **options)


def test_options_travel_with_the_plan_and_defaults_are_left_out_of_it():
    source = FileSource("in.csv", PAIRS, options=CsvOptions(False, "|", None, "\\", "NA", "latin-1"), on_change="fail")
    again = source_from_spec(source.spec())
    assert (again.options, again.on_change) == (source.options, "fail")
    assert set(FileSource("in.csv", PAIRS).spec()) == {"kind", "path", "schema", "format", "on_error"}
    stdin = StdinSource(PAIRS, "csv", CsvOptions(delimiter=";"))
    assert source_from_spec(stdin.spec()).options == stdin.options
    sink = files("out", format="csv", delimiter=";", null="NA")
    assert sink_from_spec(sink.spec()).options == sink.options


def test_standard_input_takes_the_options_of_csv(tmp_path):
    source = StdinSource(PAIRS, "csv", CsvOptions(header=False, delimiter=";"))
    source.open(str(tmp_path))
    put(tmp_path / "spool", 'a;b\n1;"x\ny"\n')
    items = list(source.read("0", 0, (tmp_path / "spool").stat().st_size))
    assert [row for item in items if not isinstance(item, Rejected) for row in item.to_pylist()] == [
        {"a": 1, "b": "x\ny"}
    ]
    assert [item.reason for item in items if isinstance(item, Rejected)] == [
        "column a: 'a' cannot be read as bigint (the first line, read as a row: header=False)"
    ]


def test_a_null_in_the_only_column_of_a_csv_sink_is_refused_unless_it_has_a_text(tmp_path):
    schema = Schema("b string")
    batch = pa.RecordBatch.from_pylist([{"b": "x"}, {"b": None}], schema=schema.arrow)
    writer = open_writer("csv", str(tmp_path / "a.csv"), schema.arrow)
    with pytest.raises(SinkFailed, match="cannot hold null"):
        writer.write_batch(batch)
    writer.close()
    writer = open_writer("csv", str(tmp_path / "b.csv"), schema.arrow, CsvOptions(null="NA"))
    writer.write_batch(batch)
    writer.close()
    assert read(tmp_path / "b.csv", schema, null="NA")[0] == [{"b": "x"}, {"b": None}]


PIECES = st.lists(
    st.sampled_from(["1,x", '2,"a', 'b"', '"', '3,"c,d"', "", "y", '4,"e""', 'f"",g"', "5,z\r"]), max_size=25
)


@settings(max_examples=200, deadline=None)
@given(
    PIECES,
    st.booleans(),
    st.lists(st.integers(0, 150), max_size=6),
    st.sampled_from([0, 4]),
    st.integers(4, 40),
)
@example(['2,"a', "1,x", "", "", 'b"'], False, [1], 0, 12)  # 13 bytes, and 11 without the blank lines
@example(['2,"a', 'b"', "", "1,x"], True, [9], 0, 7)  # 8 bytes, with the line feed
@example(['2,"a\r', 'b"\r', "1,x\r"], True, [10], 0, 9)
def test_any_cut_gives_the_rows_of_the_whole_also_where_rows_take_several_lines(
    tmp_path_factory, lines, ended, cuts, head, longest
):
    text = ("b,a\n" if head else "").encode() + "\n".join(lines).encode() + (b"\n" if ended else b"")
    path = put(tmp_path_factory.mktemp("cut") / "f.csv", text)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})

    def parsed(edges):
        records = CsvRecords(CsvOptions(), 2)
        blocks = (
            block
            for first, last in itertools.pairwise(edges)
            for block in read_lines(str(path), first, last, head, len(text), records)
        )
        found = [item for at, data in blocks for item in parser("csv", PAIRS).parse(data, "f", at)]
        rows = [row for item in found if not isinstance(item, Rejected) for row in item.to_pylist()]
        return rows, [(item.position, item.raw) for item in found if isinstance(item, Rejected)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_records, "LONGEST_RECORD", longest)
        assert parsed(edges) == parsed([0, len(text)]) == judged(text, head, longest)


def judged(text, head, longest):
    """Read a file line by line: a line that opens a quote goes on to the next line with an odd number of quotes."""
    rows, bad, lines, at = [], [], io.BytesIO(text[head:]).readlines(), head
    while lines:
        last = next((n for n, line in enumerate(lines) if n and line.count(b'"') % 2), 0)
        whole = b"".join(lines[: last + 1])
        fields = one_row(whole) if lines[0].count(b'"') % 2 and last and len(whole) <= longest else None
        if fields is None:
            last, whole, fields = 0, lines[0], one_row(lines[0])
        raw = whole.removesuffix(b"\n").removesuffix(b"\r")
        if fields is not None:
            rows.append({"a": int(fields[0]), "b": fields[1]})
        elif raw.strip():
            bad.append((f"f:{at}", raw))
        at, lines = at + len(whole), lines[last + 1 :]
    return rows, bad


def one_row(text):
    """Return the two fields of a text if Python's reader finds one row in it, with a number first."""
    try:
        rows = list(csv.reader(io.StringIO(text.decode(), newline=""), strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 and len(rows[0]) == 2 and rows[0][0].isdigit() else None
