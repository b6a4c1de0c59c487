from __future__ import annotations

import gzip
import itertools
import json
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.catalog import source_from_spec
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.lines import read_lines
from penstock.connectors.formats.parsers import parser
from penstock.contracts import Rejected
from penstock.errors import BadSchema, BadValue, CheckpointDamaged, MissingInput, RowRejected, SourceFailed
from penstock.schema import Schema

PAIRS = Schema("a bigint, b string")


def rows_of(items):
    return [row for item in items if not isinstance(item, Rejected) for row in item.to_pylist()]


def read_all(source, parallelism=1):
    end = source.latest({}, None)
    return rows_of(item for split in source.splits({}, end, parallelism) for item in source.read_split(split))


def numbers(source):
    return [row["a"] for row in read_all(source)]


def put(path, text, age=0):
    """Write a file that is `age` seconds old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/trades/*.csv", "trades"),
        ("data/trades.csv", "trades"),
        ("data/trades/", "trades"),
        ("data/trades-*.csv.gz", "trades"),
        ("data/trades/**/*.csv", "trades"),
        ("*.csv", "files"),
    ],
)
def test_a_source_is_named_after_the_last_part_that_says_something(path, name):
    assert FileSource(path, PAIRS, "csv").name == name


def test_files_are_read_oldest_first_in_folders_globs_and_alone(tmp_path):
    put(tmp_path / "in/x/new.csv", "3,c\n")
    put(tmp_path / "in/old.csv", "1,x\n2,y\n", age=9)
    put(tmp_path / "in/_hidden.csv", "8,?\n")
    put(tmp_path / "in/.git/y.csv", "8,?\n")
    put(tmp_path / "in/half.csv.tmp", "8,?\n")
    assert numbers(FileSource(f"{tmp_path}/in", PAIRS, "csv")) == [1, 2, 3]
    assert numbers(FileSource(f"{tmp_path}/in/**/*.csv", PAIRS)) == [1, 2, 3]
    assert numbers(FileSource(f"{tmp_path}/in/*/n*.csv", PAIRS)) == [3]
    assert numbers(FileSource(f"{tmp_path}/in/x*", PAIRS, "csv")) == [3]
    assert numbers(FileSource("in/old.csv", PAIRS, base=str(tmp_path))) == [1, 2]


def test_a_folder_without_a_format_reads_the_files_whose_ending_says_it(tmp_path):
    put(tmp_path / "a.csv", "1,x\n")
    put(tmp_path / "README", "hello")
    assert numbers(FileSource(str(tmp_path), PAIRS)) == [1]


def test_headers_byte_order_marks_and_line_ends_may_differ_from_file_to_file(tmp_path):
    put(tmp_path / "1.csv", b"\xef\xbb\xbfb,x,a\r\nfoo,?,1\r\n", age=3)
    put(tmp_path / "2.csv", "2,foo\n", age=2)
    put(tmp_path / "3.csv", b"\xef\xbb\xbf3,foo", age=1)
    rows = read_all(FileSource(str(tmp_path), PAIRS))
    assert rows == [{"a": n, "b": "foo"} for n in (1, 2, 3)]


def test_a_header_that_lacks_a_column_names_the_file(tmp_path):
    put(tmp_path / "in.csv", "a,c\n1,2\n")
    source = FileSource(f"{tmp_path}/in.csv", PAIRS)
    with pytest.raises(BadSchema, match=r"in\.csv: the header lacks b; it has a, c"):
        source.latest({}, None)


def test_compressed_files_are_read_whole(tmp_path):
    put(tmp_path / "in.csv.gz", gzip.compress(b"a,b\n1,x\n2,?\nz,?\n"))
    source = FileSource(f"{tmp_path}/in.csv.gz", PAIRS)
    assert source.latest({}, 1) == {"0": 1}
    items = list(source.read("0", 0, 1))
    assert rows_of(items) == [{"a": 1, "b": "x"}, {"a": 2, "b": "?"}]
    assert [item.position for item in items if isinstance(item, Rejected)] == [f"{tmp_path}/in.csv.gz:12"]


def test_text_and_json_files_are_read(tmp_path):
    put(tmp_path / "in.log", "x\n\ny\n")
    assert read_all(FileSource(f"{tmp_path}/in.log")) == [{"value": v} for v in ("x", "", "y")]
    put(tmp_path / "in.jsonl", '{"a":1}\n{"a":2}\n')
    assert numbers(FileSource(f"{tmp_path}/in.jsonl", PAIRS)) == [1, 2]


def test_csv_without_a_schema_and_an_unknown_format_are_refused(tmp_path):
    with pytest.raises(BadSchema, match="csv needs a schema"):
        FileSource("in.csv")
    with pytest.raises(BadValue, match="format='xml' is not known"):
        FileSource("in.xml", PAIRS, "xml")
    put(tmp_path / "data/a.bin", "")
    with pytest.raises(BadValue, match="cannot infer the format"):
        FileSource(str(tmp_path), PAIRS)


def test_missing_input_says_what_to_do(tmp_path):
    source = FileSource(f"{tmp_path}/none.csv", PAIRS)
    with pytest.raises(MissingInput, match="there is no file or folder"):
        source.check()
    with pytest.raises(MissingInput, match=r"no file matches .* there is no folder"):
        FileSource(f"{tmp_path}/none/*.csv", PAIRS).check()
    (tmp_path / "trades").mkdir()
    with pytest.raises(
        MissingInput, match=r"there is no folder .*trdes/2026'\n  in .*: trades      did you mean 'trades'\?"
    ):
        FileSource(f"{tmp_path}/trdes/2026/*.csv", PAIRS).check()
    with pytest.raises(MissingInput, match="no Parquet file"):
        FileSource(f"{tmp_path}/*.parquet")
    FileSource(str(tmp_path), PAIRS, "csv").check()


def test_a_pattern_that_nothing_matches_yet_is_waited_for_as_an_empty_folder_is(tmp_path, caplog):
    put(tmp_path / "in/a.json", "{}\n")
    (tmp_path / "empty").mkdir()
    for path, others in (
        ("in/*.csv", "\n  it contains other files: a.json"),
        ("empty/*.csv", ""),
        ("empty/2026-*/b.csv", ""),
    ):
        source = FileSource(f"{tmp_path}/{path}", PAIRS)
        source.open(str(tmp_path / f"notes-{len(path)}"))
        caplog.clear()
        source.check()
        assert caplog.messages == [f"no file matches '{tmp_path}/{path}' yet: waiting for the first{others}"]
        assert source.latest({}, None) == {"0": 0}
    put(tmp_path / "empty/2026-01/b.csv", "1,x\n")
    assert numbers(source) == [1]
    (tmp_path / "more").mkdir()
    FileSource(f"{tmp_path}/more", PAIRS, "json").check()
    assert "there is no file to read in" in caplog.text


def test_input_that_may_not_be_read_is_refused_before_the_start(tmp_path, monkeypatch):
    put(tmp_path / "in.csv", "1,x\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(MissingInput, match="permission denied"):
        FileSource(f"{tmp_path}/in.csv", PAIRS).check()


def test_a_restart_goes_on_in_the_logged_order(tmp_path):
    folder = str(tmp_path / "notes")
    put(tmp_path / "in/b.csv", "1,x\n")
    first = FileSource(f"{tmp_path}/in", PAIRS, "csv")
    first.open(folder)
    middle = first.latest({}, None)
    put(tmp_path / "in/a.csv", "2,x\n", age=99)
    put(tmp_path / "in/b.csv", "1,x\n9,x\n")
    again = FileSource(f"{tmp_path}/in", PAIRS, "csv")
    again.open(folder)
    end = again.latest(middle, None)
    assert [row["a"] for row in rows_of(again.read("0", 0, middle["0"]))] == [1]
    assert [row["a"] for row in rows_of(again.read("0", middle["0"], end["0"]))] == [2]
    assert again.ended(end)
    assert again.latest(end, None) == end


def test_a_torn_last_line_of_the_log_is_not_there(tmp_path):
    put(tmp_path / "in/a.csv", "1,x\n")
    log = tmp_path / "notes/files.jsonl"
    log.parent.mkdir()
    log.write_text('{"path": "in/')
    source = FileSource(f"{tmp_path}/in", PAIRS, "csv")
    source.open(str(log.parent))
    assert numbers(source) == [1]
    assert len([json.loads(line) for line in log.read_text().splitlines()]) == 1


def test_a_source_ends_when_the_listing_has_nothing_new(tmp_path):
    put(tmp_path / "in/a.csv", "1,x\n")
    source = FileSource(f"{tmp_path}/in", PAIRS, "csv")
    assert not source.ended(source.initial())
    end = source.latest({}, None)
    assert source.ended(end)
    put(tmp_path / "in/empty.csv", "")
    assert not source.ended(end)
    assert source.latest(end, None) == end
    assert source.ended(end)


@pytest.mark.parametrize("given", ["in", "in/1.csv", "in/*.csv"])
def test_a_file_that_grew_after_it_was_read_is_reported_once_though_no_rows_are_read(tmp_path, given):
    path = put(tmp_path / "in" / "1.csv", "1,x\n")
    planner, driver = (FileSource(str(tmp_path / given), PAIRS, "csv") for _ in range(2))
    for source in (planner, driver):
        source.open(tmp_path / "log")
    end = planner.latest({}, None)
    assert (driver.warnings(), driver.changed_inputs()) == ([], 0)
    path.write_text("1,x\n2,y\n")
    assert planner.latest(end, None) == end
    [warning] = driver.warnings()
    assert "1.csv changed after it was found (4 bytes, now 8); what is new in it is not read" in warning
    assert (driver.warnings(), driver.changed_inputs()) == ([], 1)
    restarted = FileSource(str(tmp_path / given), PAIRS, "csv")
    restarted.open(tmp_path / "log")
    assert (restarted.warnings(), restarted.changed_inputs()) == ([], 1)


def test_a_logged_file_that_vanished_or_shrank_fails_by_name(tmp_path):
    path = put(tmp_path / "a.csv", "1,x\n2,y\n")
    source = FileSource(str(path), PAIRS)
    source.latest({}, None)
    put(path, "1,x\n")
    with pytest.raises(SourceFailed, match=r"a\.csv became shorter"):
        list(source.read("0", 0, 8))
    path.unlink()
    with pytest.raises(SourceFailed, match=r"a\.csv was found earlier and is missing"):
        list(source.read("0", 0, 8))


def test_on_error_fail_stops_at_the_first_bad_row(tmp_path):
    put(tmp_path / "in.csv", "1,x\nz,y\n")
    source = FileSource(f"{tmp_path}/in.csv", PAIRS, on_error="fail")
    with pytest.raises(RowRejected, match=r"in\.csv:4: column a: 'z' cannot be read as bigint"):
        read_all(source)
    with pytest.raises(BadValue, match="on_error"):
        FileSource(f"{tmp_path}/in.csv", PAIRS, on_error="skip")


def test_an_epoch_of_text_has_about_max_rows_but_at_least_a_block(tmp_path):
    put(tmp_path / "in.csv", "1,abcdefg\n" * 1_000_000)
    source = FileSource(f"{tmp_path}/in.csv", PAIRS)
    assert source.latest({}, 1) == {"0": 1 << 20}
    assert source.latest({}, 500_000) == {"0": 5_000_000}
    assert source.latest({"0": 9_500_000}, 500_000) == {"0": 10_000_000}
    pieces = source.splits({}, {"0": 10_000_000}, 4)
    assert [sum(part.last - part.first for part in piece) for piece in pieces] == [2_500_000] * 4


def test_small_files_share_a_piece(tmp_path):
    for n in range(10):
        put(tmp_path / f"{n}.csv", f"{n},x\n", age=-n)
    source = FileSource(str(tmp_path), PAIRS)
    (piece,) = source.splits({}, source.latest({}, None), 8)
    assert len(piece) == 10
    assert numbers(source) == list(range(10))


def test_offsets_beyond_the_log_are_refused_instead_of_read_as_nothing(tmp_path):
    put(tmp_path / "a.csv", "1,x\n")
    source = FileSource(f"{tmp_path}/a.csv", PAIRS)
    source.open(str(tmp_path / "notes"))
    with pytest.raises(CheckpointDamaged, match=r"files\.jsonl ends before the offset 8"):
        source.splits({}, {"0": 8}, 1)
    with pytest.raises(CheckpointDamaged):
        source.latest({"0": 8}, None)


LINES = st.lists(st.sampled_from(["", "1,x", "22,yy", "z", "3", "4,é", '5,"a,b"', "\r"]), max_size=30)


@settings(max_examples=150, deadline=None)
@given(LINES, st.booleans(), st.lists(st.integers(0, 200), max_size=6), st.sampled_from([0, 4]))
def test_any_cut_into_byte_ranges_gives_each_line_once(tmp_path_factory, lines, ended, cuts, head):
    text = ("b,a\n" if head else "").encode() + "\n".join(lines).encode() + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("cut") / "f.csv"
    path.write_bytes(text)
    size = len(text)
    edges = sorted({0, size, *(cut for cut in cuts if cut < size)})
    found = [
        block for first, last in itertools.pairwise(edges) for block in read_lines(str(path), first, last, head, size)
    ]
    assert b"".join(block for _, block in found) == text[head:]
    assert all(text[at : at + len(block)] == block for at, block in found)
    assert all(block.endswith(b"\n") for _, block in found[:-1])


@settings(max_examples=40, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 40))
def test_any_epochs_and_pieces_give_the_rows_of_the_whole(tmp_path_factory, files, parallelism, step):
    folder = tmp_path_factory.mktemp("whole")
    expected = []
    for n, lines in enumerate(files):
        text = "\n".join(lines).encode()
        put(folder / f"{n}.csv", text, age=-n)
        expected += parser("csv", PAIRS).parse(text, str(folder / f"{n}.csv"))
    source = FileSource(str(folder), PAIRS)
    end = source.latest({}, None)["0"]
    found = []
    for first in range(0, end, step):
        split = source.splits({"0": first}, {"0": min(end, first + step)}, parallelism)
        found += [item for piece in split for item in source.read_split(piece)]
    assert rows_of(found) == rows_of(expected)

    def bad(items):
        return sorted(
            (item.position, item.raw, item.reason.partition(" (the first line")[0])
            for item in items
            if isinstance(item, Rejected)
        )

    assert bad(found) == bad(expected)


def test_a_failed_discovery_forgets_no_file(tmp_path):
    put(tmp_path / "1.csv", "1,x\n", age=3)
    broken = put(tmp_path / "2.csv", "a,z\n", age=2)
    source = FileSource(str(tmp_path), PAIRS)
    with pytest.raises(BadSchema):
        source.latest({}, None)
    put(broken, "2,x\n")
    assert numbers(source) == [1, 2]


def test_ten_thousand_files_are_listed_once_and_then_skipped(tmp_path):
    for n in range(10_000):
        (tmp_path / f"{n:05}.csv").write_bytes(b"1,x\n")
    source = FileSource(str(tmp_path), PAIRS)
    assert source.latest({}, 5) == {"0": 20}
    end = source.latest({}, None)
    assert end == {"0": 40_000}
    assert source.ended(end)


def test_a_source_survives_json_and_pickle_without_its_log(tmp_path):
    put(tmp_path / "a.csv", "1,x\n")
    source = FileSource("a.csv", PAIRS, base=str(tmp_path))
    end = source.latest({}, None)
    (piece,) = source.splits({}, end, 1)
    copy = pickle.loads(pickle.dumps(source))
    assert rows_of(copy.read_split(pickle.loads(pickle.dumps(piece)))) == [{"a": 1, "b": "x"}]
    assert source_from_spec(json.loads(json.dumps(source.spec()))) == source


def test_with_a_null_text_an_empty_field_of_csv_is_null_as_well_and_quoted_ones_are_texts(tmp_path):
    path = put(tmp_path / "in.csv", '1,NA\n2,\n3,""\n4,"NA"\n')
    source = FileSource(str(path), PAIRS, options=CsvOptions(null="NA"))
    assert [row["b"] for row in read_all(source)] == [None, None, "", "NA"]
