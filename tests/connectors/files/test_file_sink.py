from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.catalog import sink_from_spec
from penstock.connectors.files import staging as stage
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.contracts import Epoch, Rejected
from penstock.errors import BadSchema, BadValue, DiskFull, SettingsError, SinkFailed, UnknownColumn
from penstock.schema import Schema
from penstock.storage import stores as local
from tests.connectors.files.crashes import Killed, crash_after

PAIRS = Schema("a bigint, b string")


def batch(*rows, schema=PAIRS):
    return pa.RecordBatch.from_pylist(list(rows), schema=schema.nullable().arrow)


def epoch(number=0, sink="out"):
    return Epoch("line", sink, number)


def opened(path, *args, schema=PAIRS, **options):
    sink = FileSink(str(path), *args, **options)
    sink.name = "out"
    sink.open(schema, ())
    return sink


def write(sink, number, *partitions):
    tokens = [sink.prepare(epoch(number), n, batches) for n, batches in enumerate(partitions)]
    sink.commit(epoch(number), tokens)
    return tokens


def shown(path):
    return sorted(
        os.path.relpath(os.path.join(folder, name), path)
        for folder, _, names in os.walk(path)
        for name in names
        if "_penstock" not in folder
    )


def staged(path):
    return [name for _, _, names in os.walk(path / "_penstock/staged") for name in names]


def rows_in(path, schema=PAIRS, format="parquet"):
    source = FileSource(str(path), schema, format)
    found = source.read("0", 0, source.latest({}, None)["0"])
    return [row for item in found for row in ([item] if isinstance(item, Rejected) else item.to_pylist())]


def test_an_epoch_becomes_one_file(tmp_path):
    sink = opened(tmp_path)
    write(sink, 3, [batch({"a": 1})], [], [batch()], [batch({"a": 2})])
    assert shown(tmp_path) == ["part-line-00000003-0.parquet"]
    assert [row["a"] for row in rows_in(tmp_path)] == [1, 2]
    assert not staged(tmp_path)


def test_two_sinks_may_share_a_folder_under_names_of_their_own(tmp_path):
    sink = opened(tmp_path)
    for name in ("left", "right"):
        epoch_of = epoch(0, name)
        sink.commit(epoch_of, [sink.prepare(epoch_of, 0, [batch({"a": 1})])])
    assert shown(tmp_path) == ["part-line-left-00000000-0.parquet", "part-line-right-00000000-0.parquet"]


def test_nothing_shows_before_the_commit_nor_after_an_abort(tmp_path):
    sink = opened(tmp_path)
    token = sink.prepare(epoch(), 0, [batch({"a": 1})])
    assert [set(file) for file in token] == [{"staged", "final", "rows", "size"}]
    assert token[0]["rows"] == 1
    assert not shown(tmp_path)
    assert not rows_in(tmp_path)
    sink.abort(epoch(), [token])
    assert not staged(tmp_path)
    assert not sink.committed(epoch())


def test_a_replayed_epoch_is_not_written_again(tmp_path):
    sink = opened(tmp_path)
    write(sink, 0, [batch({"a": 1})])
    again = opened(tmp_path)
    assert again.committed(epoch(0))
    write(again, 0, [batch({"a": 1})], [batch({"a": 1})])
    assert [row["a"] for row in rows_in(tmp_path)] == [1]
    assert not staged(tmp_path)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 16), st.booleans())
def test_a_crash_anywhere_in_the_commit_gives_all_rows_once_after_the_replay(tmp_path_factory, calls, asks):
    path = tmp_path_factory.mktemp("crash")
    sink = opened(path, partition_by="b")
    rows = [{"a": n, "b": "xyz"[n % 3]} for n in range(9)]
    tokens = [sink.prepare(epoch(), n, [batch(*rows[n::2])]) for n in range(2)]
    with crash_after(calls):
        sink.commit(epoch(), tokens)
    again = opened(path, partition_by="b")
    seen = sorted(row["a"] for row in rows_in(path))
    assert seen in ([], list(range(9)))
    if asks:
        assert again.committed(epoch()) == bool(seen)
    write(again, 0, [batch(*rows)])
    assert sorted(row["a"] for row in rows_in(path)) == list(range(9))
    assert not staged(path)


def test_a_run_that_takes_over_removes_what_dead_runs_staged_but_not_what_other_jobs_did(tmp_path):
    other, dead = opened(tmp_path), opened(tmp_path)
    kept = other.prepare(epoch(1, "other"), 0, [batch({"a": 1})])
    dead.prepare(epoch(2), 0, [batch({"a": 2})])
    opened(tmp_path).bind_lineage("line", "out")
    assert staged(tmp_path) == [os.path.basename(kept[0]["staged"])]
    other.commit(epoch(1, "other"), [kept])
    assert [row["a"] for row in rows_in(tmp_path)] == [1]


def test_a_run_that_was_taken_over_cannot_commit(tmp_path):
    old, new = opened(tmp_path), opened(tmp_path)
    write(old, 0, [batch({"a": 1})])
    token = old.prepare(epoch(1), 0, [batch({"a": 2})])
    new.bind_lineage("line", "out")
    with pytest.raises(SinkFailed, match="another run of this job writes to"):
        old.commit(epoch(1), [token])
    write(new, 1, [batch({"a": 2})])
    assert [row["a"] for row in rows_in(tmp_path)] == [1, 2]


def test_what_was_staged_and_forgotten_goes_after_a_week(tmp_path):
    (file,) = opened(tmp_path).prepare(epoch(), 0, [batch({"a": 1})])
    os.utime(tmp_path / file["staged"], (0, 0))
    opened(tmp_path)
    assert not staged(tmp_path)


def test_the_ledger_does_not_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_LONG", 2000)
    sink = opened(tmp_path)
    for number in range(0, 90, 3):
        write(sink, number, [batch({"a": number})])
    ledger = tmp_path / "_penstock/ledger/line/out.json"
    assert ledger.stat().st_size < 2400
    assert opened(tmp_path).committed(epoch(87))
    assert opened(tmp_path).committed(epoch(4))
    assert not opened(tmp_path).committed(epoch(88))


def test_half_a_line_of_the_ledger_does_not_count(tmp_path):
    write(opened(tmp_path), 0, [batch({"a": 1})])
    ledger = tmp_path / "_penstock/ledger/line/out.json"
    with ledger.open("ab") as file:
        file.write(b'{"run": "x", "epoch": 7, "fi')
    sink = opened(tmp_path)
    assert not sink.committed(epoch(7))
    write(sink, 1, [batch({"a": 2})])
    assert opened(tmp_path).committed(epoch(1))
    assert [row["a"] for row in rows_in(tmp_path)] == [1, 2]


@pytest.mark.parametrize("damage", [b"", b"\xff\x00", b"[]", b'{"epoch": 0}', b'{"epoch": 0, "files": [1]}'])
def test_a_damaged_ledger_is_reported_by_its_name_with_the_way_out(tmp_path, damage):
    write(opened(tmp_path), 0, [batch({"a": 1})])
    (tmp_path / "_penstock/ledger/line/out.json").write_bytes(damage)
    sink = opened(tmp_path)
    for read in (lambda: sink.bind_lineage("line", "out"), lambda: sink.used_before("out")):
        with pytest.raises(SinkFailed, match=r"the ledger _penstock/ledger/line/out\.json of .* is damaged") as error:
            read()
        assert "put the file back" in str(error.value)
        assert not error.value.transient
    assert [row["a"] for row in rows_in(tmp_path)] == [1]


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_with_less_than_exactly_once_rows_show_when_their_task_ends_and_a_replay_replaces_them(tmp_path, guarantee):
    sink = opened(tmp_path, guarantee=guarantee)
    for _ in range(2):
        token = sink.prepare(epoch(), 0, [batch({"a": 1})])
        assert shown(tmp_path) == ["part-line-00000000-0.parquet"]
        assert not sink.committed(epoch())
        sink.commit(epoch(), [token])
    assert not os.path.exists(tmp_path / "_penstock/ledger")
    assert [row["a"] for row in rows_in(tmp_path)] == [1]


def test_rows_that_fail_on_their_way_leave_nothing(tmp_path):
    def failing():
        yield batch({"a": 1})
        raise Killed

    with pytest.raises(Killed):
        opened(tmp_path).prepare(epoch(), 0, failing())
    assert not shown(tmp_path)
    assert not staged(tmp_path)


def test_tasks_write_with_a_copy_of_the_sink(tmp_path):
    sink = opened(tmp_path)
    copy = pickle.loads(pickle.dumps(sink))
    sink.commit(epoch(), [copy.prepare(epoch(), 0, [batch({"a": 1})])])
    assert [row["a"] for row in rows_in(tmp_path)] == [1]


def test_a_file_that_its_reader_took_does_not_come_back(tmp_path):
    sink = opened(tmp_path)
    write(sink, 0, [batch({"a": 1})])
    (tmp_path / "part-line-00000000-0.parquet").unlink()
    write(opened(tmp_path), 0, [batch({"a": 1})])
    assert not shown(tmp_path)


def test_rows_go_to_folders_by_value(tmp_path):
    rows = [{"a": 1, "b": "x/y"}, {"a": 2, "b": None}, {"a": 3, "b": "x/y"}, {"a": 4, "b": "é"}]
    sink = opened(tmp_path, partition_by=["b"])
    write(sink, 0, [batch(*rows[:2]), batch(*rows[2:])])
    assert {name.split("/")[0] for name in shown(tmp_path)} == {
        *("b=x%2Fy", "b=__HIVE_DEFAULT_PARTITION__"),
        "b=%C3%A9",
    }
    assert [r["a"] for r in pq.read_table(tmp_path / "b=x%2Fy", partitioning=None).to_pylist()] == [1, 3]
    assert sorted(row["a"] for row in rows_in(tmp_path)) == [1, 2, 3, 4]


def test_many_values_need_few_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "_MOST_OPEN", 3)
    rows = [{"a": n, "b": str(n % 10)} for n in range(40)]
    write(opened(tmp_path, "json", "b"), 0, [batch(*rows[:20]), batch(*rows[20:])])
    assert sorted(row["a"] for row in rows_in(tmp_path, format="json")) == list(range(40))


EVERY = Schema("s string, i bigint, d double, b boolean, c decimal(6,2), y date, ts timestamp")
FULL = {
    "s": 'a,"b"\\ é',
    "i": 1 << 60,
    "d": 0.1,
    "b": True,
    "c": Decimal("-12.30"),
    "y": date(2026, 1, 2),
    "ts": datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
}


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_what_is_written_is_read_back(tmp_path, format):
    rows = [FULL, dict.fromkeys(FULL), {**FULL, "s": ""}, {**FULL, "d": float("inf")}]
    sink = opened(tmp_path, format, schema=EVERY)
    write(sink, 0, [batch(*rows, schema=EVERY)])
    assert rows_in(tmp_path, EVERY, format) == rows


def test_csv_has_a_header_and_times_end_in_z(tmp_path):
    write(opened(tmp_path, "csv", schema=EVERY), 0, [batch(FULL, schema=EVERY)])
    (name,) = shown(tmp_path)
    header, line = (tmp_path / name).read_text().splitlines()
    assert header == '"s","i","d","b","c","y","ts"'
    assert line.endswith('"2026-01-01T12:00:00.000005Z"')
    assert pacsv.read_csv(tmp_path / name).num_rows == 1


def test_json_holds_nested_values(tmp_path):
    schema = Schema("a array<struct<t:timestamp,c:decimal(5,2),x:string>>, m map<string,double>")
    row = {"a": [{"t": FULL["ts"], "c": Decimal("1.50"), "x": None}, None], "m": [("k", 0.5)]}
    write(opened(tmp_path, "json", schema=schema), 0, [batch(row, schema=schema)])
    (name,) = shown(tmp_path)
    assert json.loads((tmp_path / name).read_text()) == {
        "a": [{"t": "2026-01-01T12:00:00.000005Z", "c": "1.50", "x": None}, None],
        "m": {"k": 0.5},
    }


def test_parquet_is_compressed_with_instants(tmp_path):
    write(opened(tmp_path, schema=EVERY), 0, [batch(FULL, schema=EVERY)])
    (name,) = shown(tmp_path)
    file = pq.ParquetFile(tmp_path / name)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.field("ts").type == pa.timestamp("us", "UTC")


def test_wrong_formats_types_and_columns_are_refused(tmp_path):
    with pytest.raises(BadValue, match="format='xml' is not known"):
        FileSink(str(tmp_path), "xml")
    with pytest.raises(BadSchema, match="csv cannot hold column 'a' of type array<int>"):
        opened(tmp_path, "csv", schema=Schema("a array<int>"))
    with pytest.raises(BadSchema, match="json cannot hold column 'a' of type interval"):
        opened(tmp_path, "json", schema=Schema("a interval day to second"))
    with pytest.raises(BadSchema, match="csv cannot hold column 'a' of type binary"):
        opened(tmp_path, "csv", schema=Schema("a binary"))
    with pytest.raises(UnknownColumn, match="unknown column 'c'"):
        opened(tmp_path, partition_by="c")


def test_check_refuses_a_file_and_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="is a file"):
        FileSink(str(tmp_path / "file")).check()
    FileSink(str(tmp_path / "new/deep")).check()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SettingsError, match="permission denied"):
        FileSink("new", base=str(tmp_path)).check()


@pytest.fixture
def full_disk(tmp_path):
    """A file system of one megabyte."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True)
    if made.returncode:
        pytest.skip("only root may mount a small file system")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_a_full_disk_is_told_and_nothing_is_shown(full_disk, format):
    sink = opened(full_disk, format)
    write(sink, 0, [batch({"a": 1, "b": "x"})])
    noise = batch(*({"a": n, "b": os.urandom(500).hex()} for n in range(3000)))
    with pytest.raises(DiskFull, match="no space is left to write"):
        sink.prepare(epoch(1), 0, [noise])
    assert not staged(full_disk)
    write(sink, 1, [batch({"a": 2, "b": "y"})])
    assert [row["a"] for row in rows_in(full_disk, format=format)] == [1, 2]


def test_errors_of_the_disk_name_the_folder(tmp_path, monkeypatch):
    sink = opened(tmp_path)
    token = sink.prepare(epoch(), 0, [batch({"a": 1})])

    def fail(*args):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SinkFailed, match=str(tmp_path)):
        sink.commit(epoch(), [token])


def test_a_folder_that_is_deleted_while_the_job_runs_is_told(tmp_path):
    out = tmp_path / "out"
    sink = opened(out)
    write(sink, 0, [batch({"a": 1})])
    shutil.rmtree(out)
    with pytest.raises(SinkFailed, match=r"the ledger .* is missing") as error:
        write(sink, 1, [batch({"a": 2})])
    assert "run the job again" in str(error.value)
    write(opened(out), 1, [batch({"a": 2})])
    assert [row["a"] for row in rows_in(out)] == [2]


def test_a_lost_staged_file_fails_before_the_ledger_is_written(tmp_path):
    sink = opened(tmp_path)
    token = sink.prepare(epoch(), 0, [batch({"a": 1})])
    (tmp_path / token[0]["staged"]).unlink()
    with pytest.raises(SinkFailed, match="is missing"):
        sink.commit(epoch(), [token])
    assert not sink.committed(epoch())


def test_a_sink_survives_json():
    sink = FileSink("out/shipped", "csv", "b", base="/data")
    assert sink.name == "shipped"
    assert sink_from_spec(json.loads(json.dumps(sink.spec()))) == sink


def test_a_sink_that_begins_anew_knows_that_its_folder_was_written(tmp_path):
    assert not FileSink(str(tmp_path / "files")).used_before("out")
    sink = opened(tmp_path / "files")
    sink.bind_lineage("line", "out")
    assert not sink.used_before("out")
    write(sink, 0, [batch({"a": 1, "b": "x"})])
    fresh = FileSink(str(tmp_path / "files"))
    assert fresh.used_before("out")
    assert not fresh.used_before("other")
    assert not FileSink(str(tmp_path / "files"), guarantee="at_least_once").used_before("out")
