"""Small files: merged within an epoch before they show, and over epochs by compaction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files import compaction
from penstock.connectors.files.compaction import Compaction, rewrite
from penstock.connectors.files.parquet_concat import concatenate
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.contracts import Epoch, Rejected
from penstock.errors import SinkFailed
from penstock.schema import Schema
from penstock.storage.stores import open_store
from tests.connectors.files.crashes import crash_after

PAIRS = Schema("a bigint, b string")
BIG = 1 << 30


def opened(path, *args, **options):
    sink = FileSink(str(path), *args, **options)
    sink.name = "out"
    sink.open(PAIRS, ())
    return sink


def batch(*rows):
    return pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in rows], schema=PAIRS.nullable().arrow)


def write(sink, number, *partitions):
    epoch = Epoch("line", "out", number)
    sink.commit(epoch, [sink.prepare(epoch, n, [rows]) for n, rows in enumerate(partitions)])


def numbers(path):
    """What a reader finds that lists the folder."""
    found = duckdb.sql(f"SELECT a FROM read_parquet('{path}/**/*.parquet', hive_partitioning=false)").fetchall()
    return sorted(a for (a,) in found)


def shown(path):
    files = [os.path.relpath(os.path.join(at, name), path) for at, _, names in os.walk(path) for name in names]
    return sorted(name for name in files if not name.startswith("_penstock"))


values = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "b": st.none() | st.text(max_size=5),
        "c": st.none() | st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
        "d": st.none() | st.fixed_dictionaries({"x": st.booleans(), "y": st.none() | st.binary(max_size=3)}),
    }
)
EVERY = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.list_(pa.float64())),
        ("d", pa.struct([("x", pa.bool_()), ("y", pa.binary())])),
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(values, max_size=6), min_size=1, max_size=20), st.integers(1, 4), st.booleans())
def test_parquet_files_put_one_behind_the_other_hold_all_rows_in_order(tmp_path_factory, parts, group, indexed):
    folder = tmp_path_factory.mktemp("parts")
    tables = [pa.Table.from_pylist(rows, schema=EVERY) for rows in parts]
    paths = [str(folder / f"{number}.parquet") for number in range(len(tables))]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path, row_group_size=group, compression="zstd", write_page_index=indexed)
    whole = str(folder / "whole.parquet")
    concatenate(paths, whole)
    expected = pa.concat_tables(tables)
    assert pq.read_table(whole).equals(expected)
    assert duckdb.sql(f"SELECT count(*), count(a), count(b) FROM '{whole}'").fetchall() == [
        (len(expected), *(len(expected) - expected.column(name).null_count for name in "ab"))
    ]


def test_files_of_an_epoch_whose_columns_differ_are_not_merged(tmp_path):
    sink, epoch = opened(tmp_path), Epoch("line", "out", 0)
    other = pa.RecordBatch.from_pydict({"a": [2]})
    sink.commit(epoch, [sink.prepare(epoch, n, [rows]) for n, rows in enumerate((batch((1, "x")), other))])
    assert shown(tmp_path) == ["part-line-00000000-0.parquet", "part-line-00000000-1.parquet"]
    assert numbers(tmp_path) == [1, 2]


def test_a_csv_header_with_line_ends_in_it_is_left_out_once(tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_bytes(b'"a\n""b",c\n%d,2\n' % number)
    rewrite([str(tmp_path / "1.csv"), str(tmp_path / "2.csv")], str(tmp_path / "whole"), ".csv")
    assert (tmp_path / "whole").read_bytes() == b'"a\n""b",c\n1,2\n2,2\n'


NAMES = ["a", 'a"b', "a'b", 'a"b"', "a,b", "a;b", '"', '"a', "|"]
DIALECTS = [{}, {"quote": "'"}]
OTHERS = [{"delimiter": ";"}, {"quote": "|", "delimiter": "\t"}, {"quote": "'", "escape": "\\"}]


@pytest.mark.parametrize(
    "dialect", [*DIALECTS, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=str
)
@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_merged_csv_has_its_header_once_and_every_row_whatever_the_dialect(tmp_path, name, dialect):
    schema, options = Schema({name: "string", "x": "int"}), CsvOptions(**dialect)
    sink = FileSink(str(tmp_path), "csv", options=options)
    sink.open(schema, ())
    for number in range(3):
        rows = [[{name: f'v"{n}', "x": n}, {name: None, "x": 10 + n}] for n in range(3)]
        parts = [pa.RecordBatch.from_pylist(some, schema=schema.nullable().arrow) for some in rows]
        write(sink, number, *parts)
    assert len(shown(tmp_path)) == 3
    assert csv_numbers(tmp_path, schema, options) == sorted([0, 1, 2, 10, 11, 12] * 3)
    Compaction(open_store(str(tmp_path))).run(BIG)
    assert len(shown(tmp_path)) in (2, 3)
    assert csv_numbers(tmp_path, schema, options) == sorted([0, 1, 2, 10, 11, 12] * 3)


def csv_numbers(path, schema, options):
    source = FileSource(str(path), schema, "csv", options=replace(options, header=True))
    found = list(source.read("0", 0, source.latest({}, None)["0"]))
    assert not [item for item in found if isinstance(item, Rejected)]
    return sorted(row["x"] for item in found for row in item.to_pylist())


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_an_epoch_shows_one_file_for_each_folder(tmp_path, format):
    sink = opened(tmp_path, format, "b")
    write(sink, 0, *(batch((n, "x"), (n + 10, "y")) for n in range(8)))
    assert shown(tmp_path) == [f"b={b}/part-line-00000000-0.{format}" for b in "xy"]
    read = {"parquet": "parquet", "csv": "csv_auto", "json": "json_auto"}[format]
    found = duckdb.sql(f"SELECT a FROM read_{read}('{tmp_path}/*/*.{format}') ORDER BY a").fetchall()
    assert [a for (a,) in found] == [*range(8), *range(10, 18)]


def test_files_that_are_not_small_are_left_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "SMALL", 10)
    write(opened(tmp_path), 0, batch((1, "x")), batch((2, "x")))
    assert shown(tmp_path) == ["part-line-00000000-0.parquet", "part-line-00000000-1.parquet"]


def test_a_reader_with_a_recursive_glob_does_not_see_what_is_staged(tmp_path):
    sink = opened(tmp_path)
    write(sink, 0, batch((1, "x")))
    sink.prepare(Epoch("line", "out", 1), 0, [batch((2, "x"))])
    assert numbers(tmp_path) == [1]


def epochs(path, count=4):
    sink = opened(path, partition_by="b")
    for n in range(count):
        write(sink, n, batch((n, "x"), (n + 10, "y")))
    return sink


def test_compaction_merges_all_but_the_newest_epoch(tmp_path):
    epochs(tmp_path)
    done = Compaction(open_store(str(tmp_path))).run(BIG)
    assert (done.merged, done.into, done.left) == (6, 2, 2)
    assert shown(tmp_path) == [
        *("b=x/part-line-00000003-0.parquet", "b=x/whole-00000001.parquet"),
        *("b=y/part-line-00000003-0.parquet", "b=y/whole-00000002.parquet"),
    ]
    assert numbers(tmp_path) == [*range(4), *range(10, 14)]
    assert pq.ParquetFile(tmp_path / "b=x/whole-00000001.parquet").num_row_groups == 1


def test_a_file_that_was_merged_never_comes_back(tmp_path):
    sink = epochs(tmp_path)
    Compaction(open_store(str(tmp_path))).run(BIG)
    write(sink, 4, batch((4, "x")))
    again = opened(tmp_path, partition_by="b")
    for n in range(5):
        write(again, n, batch((n, "x"), (n + 10, "y")))
    Compaction(open_store(str(tmp_path))).run(BIG)
    assert numbers(tmp_path) == [*range(5), *range(10, 14)]


def test_compaction_fills_files_up_to_the_size_and_leaves_larger_ones(tmp_path):
    sink = opened(tmp_path)
    for n in range(9):
        write(sink, n, batch((n, "x")))
    size = os.path.getsize(tmp_path / "part-line-00000000-0.parquet")
    assert Compaction(open_store(str(tmp_path))).run(2 * size).into == 4
    assert Compaction(open_store(str(tmp_path))).run(size).merged == 0
    assert numbers(tmp_path) == list(range(9))


def test_compaction_keeps_files_of_other_columns_and_of_other_programs_apart(tmp_path):
    sink = opened(tmp_path)
    for n in range(2):
        write(sink, n, batch((n, "x")))
    for n in range(2, 5):
        rows = pa.RecordBatch.from_pydict({"a": [n]})
        epoch = Epoch("line", "out", n)
        sink.commit(epoch, [sink.prepare(epoch, 0, [rows])])
    pq.write_table(pa.table({"a": [99]}), tmp_path / "mine.parquet")
    Compaction(open_store(str(tmp_path))).run(BIG)
    assert shown(tmp_path) == [
        *("mine.parquet", "part-line-00000004-0.parquet"),
        *("whole-00000001.parquet", "whole-00000002.parquet"),
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 24))
def test_a_crash_anywhere_in_a_compaction_shows_all_rows_once_or_makes_readers_fail(tmp_path_factory, calls):
    path = tmp_path_factory.mktemp("crash")
    epochs(path, 3)
    expected = [*range(3), *range(10, 13)]
    with crash_after(calls):
        Compaction(open_store(str(path))).run(BIG)
    try:
        assert numbers(path) == expected
    except duckdb.InvalidInputException:
        assert any("in-work" in name for name in shown(path))
    opened(path, partition_by="b")
    assert numbers(path) == expected
    Compaction(open_store(str(path))).run(BIG)
    assert numbers(path) == expected
    assert len(shown(path)) == 4


def test_a_compaction_that_another_one_overtook_stops(tmp_path):
    epochs(tmp_path)
    slow, quick = Compaction(open_store(str(tmp_path))), Compaction(open_store(str(tmp_path)))
    quick.run(BIG)
    write(opened(tmp_path, partition_by="b"), 4, batch((4, "x")))
    with pytest.raises(SinkFailed, match=r"another compaction of .* is running"):
        slow.run(BIG)
    assert numbers(tmp_path) == [*range(5), *range(10, 14)]


def test_a_job_starts_while_a_compaction_is_at_work(tmp_path, monkeypatch):
    epochs(tmp_path)
    here = open_store(str(tmp_path))
    note, swap = here.read, here.compare_and_swap
    compaction = Compaction(here)

    def finish_meanwhile(name, text, version):
        """The one that compacts ends its work between the reading and the writing of the job that starts."""
        monkeypatch.setattr(type(here), "compare_and_swap", lambda self, *given: swap(*given))
        done.append(swap(name, text, version))
        return swap(name, text, version)

    done = []
    monkeypatch.setattr(compaction, "_finish", lambda noted: None)
    compaction.run(BIG)
    assert "from" in json.loads(note("_penstock/compaction.json")[0])
    monkeypatch.setattr(type(here), "compare_and_swap", lambda self, *given: finish_meanwhile(*given))
    opened(tmp_path, partition_by="b")
    assert done
    assert numbers(tmp_path) == [*range(4), *range(10, 14)]


def test_a_barrier_that_was_left_is_removed(tmp_path):
    epochs(tmp_path)
    Compaction(open_store(str(tmp_path))).run(BIG)
    (tmp_path / "whole-00000001-in-work.parquet").write_bytes(b"PENSTOCK")
    opened(tmp_path, partition_by="b")
    assert numbers(tmp_path) == [*range(4), *range(10, 14)]


def penstock(*arguments):
    return subprocess.run([sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True, check=False)


def test_the_command_compacts_and_tells_mistakes(tmp_path):
    epochs(tmp_path / "out")
    done = penstock("files", "compact", str(tmp_path / "out"), "--json")
    assert json.loads(done.stdout) == {"merged": 6, "into": 2, "left": 2}
    assert numbers(tmp_path / "out") == [*range(4), *range(10, 14)]
    for arguments, words in (
        ((str(tmp_path / "nowhere"),), "no file sink has written to"),
        ((str(tmp_path / "out"), "--below", "many"), "--below 'many' is not a size"),
        (("s3a://x/y",), "unknown scheme s3a://"),
    ):
        failed = penstock("files", "compact", *arguments)
        assert failed.returncode == 2
        assert words in failed.stderr
        assert "Traceback" not in failed.stderr
