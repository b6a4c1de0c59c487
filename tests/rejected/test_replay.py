"""Rejected rows go back into the topic or the folder that they came from, each once."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.contracts import REJECTED
from penstock.errors import BadSchema, CannotReplay, MissingInput
from penstock.rejected.reading import read_rejected, resolve_location
from penstock.rejected.replay import Replayed, replay
from penstock.rejected.rows import RejectedRow, identified
from penstock.settings import Settings
from penstock.storage.folders import Folder, folder
from tests.connectors.kafka_topics import Topic, fresh

SCHEMA = "id bigint, name string, at timestamp"
BROKEN = RejectedRow("in", "no JSON", None, b"{1", "in", "in/0@4", 2)
ROW = '{"id": 7, "label": "x", "at": "2026-01-01T00:00:01Z", "more": 14}'
REFUSED = RejectedRow("check", "ValueError: no", ROW, None, "in", None, 2)


def pipeline(rows: ps.Stream) -> ps.Pipeline:
    """Rows meet a function after they were renamed and got a column more, and another after a column was dropped."""
    checked = rows.rename(label="name").with_columns(more="id * 2").filter("id > 0").map(lambda row: row).named("check")
    short = rows.select("id").map(lambda row: row).named("short")
    return ps.Pipeline("p", checked.to(ps.collect()).named("a"), short.to(ps.collect()).named("b"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Folder:
    return folder(tmp_path / "checkpoint")


def send(built: ps.Pipeline, rows: list[RejectedRow], checkpoint: Folder, **more: Any) -> Replayed:
    return replay(built, rows, checkpoint, Settings(), **more)


def lines(path: Path) -> list[list[str]]:
    return [file.read_text().splitlines() for file in sorted(path.iterdir()) if file.name.startswith("replayed")]


def test_rows_go_back_into_a_folder_once_as_bytes_or_as_the_source_had_them(tmp_path: Path, checkpoint: Folder) -> None:
    (tmp_path / "in").mkdir()
    built = pipeline(ps.read_files(str(tmp_path / "in"), schema=SCHEMA, format="json").named("in"))
    done = send(built, [BROKEN, REFUSED, REFUSED], checkpoint)
    row = json.dumps({"id": 7, "name": "x", "at": "2026-01-01T00:00:01.000000Z"})
    assert lines(tmp_path / "in") == [["{1", row, row]]
    assert done.rows == {"in": 3}
    again = send(built, [BROKEN, REFUSED, REFUSED, BROKEN], checkpoint)
    assert (again.rows, again.before) == ({"in": 1}, 3)
    assert lines(tmp_path / "in") == [["{1", row, row], ["{1"]]


def test_a_replay_that_died_before_its_file_was_there_is_done_by_the_next(
    tmp_path: Path, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    built = pipeline(ps.read_files(str(tmp_path / "in"), schema=SCHEMA, format="json").named("in"))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for moment in ("targets.FileTarget.write", "targets.Replays.finish"):
        with monkeypatch.context() as dying:
            dying.setattr(f"penstock.rejected.{moment}", die)
            with pytest.raises(KeyboardInterrupt):
                send(built, [BROKEN], checkpoint)
    assert send(built, [BROKEN], checkpoint).before == 1
    assert lines(tmp_path / "in") == [["{1"]]
    # The file was read and removed; the note of the replay is enough.
    send(built, [BROKEN, REFUSED], checkpoint)
    for file in (tmp_path / "in").iterdir():
        file.unlink()
    assert send(built, [BROKEN, REFUSED], checkpoint).before == 2


def test_csv_lines_get_the_header_that_they_stood_under(tmp_path: Path, checkpoint: Folder) -> None:
    source = tmp_path / "rows-1.csv"
    source.write_text("name,id,at\nx,none,2026-01-01T00:00:00Z\n")
    built = pipeline(ps.read_files(str(tmp_path / "rows-*.csv"), schema=SCHEMA).named("in"))
    line = RejectedRow("in", "column id", None, b"x,1,2026-01-01T00:00:00Z", "in", f"{source}:11", 0)
    send(built, [line], checkpoint)
    (made,) = (file for file in tmp_path.glob("rows-*.csv") if file != source)
    assert made.read_text() == "name,id,at\nx,1,2026-01-01T00:00:00Z\n"


def test_values_go_back_into_parquet(tmp_path: Path, checkpoint: Folder) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    empty = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]).empty_table()
    pq.write_table(empty, rows / "first.parquet")
    built = pipeline(ps.read_files(str(rows)).named("in"))
    send(built, [REFUSED], checkpoint)
    (made,) = rows.glob("replayed*.parquet")
    assert pq.read_table(made).to_pylist()[0]["name"] == "x"


def test_filters_choose_rows_and_a_dry_run_only_counts(tmp_path: Path, checkpoint: Folder) -> None:
    (tmp_path / "in").mkdir()
    built = pipeline(ps.read_files(str(tmp_path / "in"), schema=SCHEMA, format="json").named("in"))
    counted = send(built, [BROKEN, REFUSED], checkpoint, dry_run=True)
    assert counted.reasons == {("in", "no JSON"): 1, ("check", "ValueError: no"): 1}
    assert lines(tmp_path / "in") == []
    assert send(built, [BROKEN, REFUSED], checkpoint, node="check").rows == {"in": 1}
    assert send(built, [BROKEN, REFUSED], checkpoint, reason="JSON").rows == {"in": 1}
    assert send(built, [BROKEN, REFUSED], checkpoint).before == 2


def test_what_cannot_go_back_is_told(tmp_path: Path, checkpoint: Folder) -> None:
    (tmp_path / "in.json").write_text("{}\n")
    (tmp_path / "in").mkdir()
    built = pipeline(ps.read_files(str(tmp_path / "in"), schema=SCHEMA, format="json").named("in"))
    short = RejectedRow("short", "ValueError", '{"id": 1}', None, "in", None, 0)
    gone = RejectedRow("gone", "ValueError", "{}", None, "in", None, 0)
    lost = send(built, [short, gone], checkpoint).lost
    assert [why for _, why in lost] == [
        "'short' was not given name, at of source 'in' as it was read",
        "the pipeline has no node 'gone' any more",
    ]
    one = pipeline(ps.read_files(str(tmp_path / "in.json"), schema=SCHEMA).named("in"))
    with pytest.raises(CannotReplay, match="would not read one more file"):
        send(one, [BROKEN], checkpoint)
    items = pipeline(ps.from_items([], SCHEMA).named("in"))
    with pytest.raises(CannotReplay, match="neither a topic nor files"):
        send(items, [BROKEN], checkpoint)


def test_equal_rows_have_ids_of_their_own_wherever_they_are_read() -> None:
    ids = [id for id, _ in identified([BROKEN, REFUSED, BROKEN])]
    assert len(set(ids)) == 3
    assert [id for id, _ in identified([BROKEN, BROKEN])] == [ids[0], ids[2]]


@pytest.fixture
def topic(event_log: str) -> Callable[[str], Topic]:
    return lambda prefix: fresh(event_log, prefix).create(1)


def test_rows_go_from_one_topic_into_another_once(topic: Callable[[str], Topic], checkpoint: Folder) -> None:
    source, bad = topic("in"), topic("bad")
    records = [
        {**row.__dict__, "raw": base64.b64encode(row.raw).decode() if row.raw else None} for row in (BROKEN, REFUSED)
    ]
    bad.produce([json.dumps(record).encode() for record in records])
    built = pipeline(ps.read_topic(source.name, schema=SCHEMA, connection=source.bootstrap).named("in"))
    settings = Settings(log=bad.bootstrap)
    rows = read_rejected(resolve_location(bad.name, None), "p", settings)
    assert rows == [BROKEN, REFUSED]
    for _ in range(2):
        done = replay(built, rows, checkpoint, settings)
    assert (done.rows, done.before) == ({"in": 0}, 2)
    values = [message.value() for message in source.consume()]
    assert values[0] == b"{1"
    assert json.loads(values[1])["name"] == "x"
    # Without the notes the ledger still has the number, so that the next replay does not take its place.
    checkpoint.remove(".replays")
    assert replay(built, rows[:1], checkpoint, settings).rows == {"in": 1}
    assert len(source.consume()) == 3


def test_rejected_rows_are_read_from_the_pipelines_own_sink_or_from_a_folder(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([BROKEN.__dict__], schema=REJECTED.arrow)
    (tmp_path / "bad").mkdir()
    pq.write_table(table, tmp_path / "bad" / "one.parquet")
    sink = ps.files(str(tmp_path / "bad"))
    assert read_rejected(resolve_location(None, sink), "p", Settings()) == [BROKEN]
    assert read_rejected(resolve_location(f"{tmp_path}/bad", None), "p", Settings()) == [BROKEN]
    with pytest.raises(MissingInput, match="no rejected_to"):
        resolve_location(None, None)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "one.json").write_text('{"node": "x"}\n')
    with pytest.raises(BadSchema, match="something other than rejected rows"):
        read_rejected(resolve_location(f"{tmp_path}/other", None), "p", Settings())
