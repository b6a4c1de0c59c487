"""Promise: the rows of a key reach every keyed sink in the order in which their source partition has them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.settings import Settings
from tests.conftest import at_parallelism
from tests.connectors.kafka_topics import Topic, fresh
from tests.spark.sink_targets import UserSink

# Enough bytes for several pieces of one file, so that a key's rows are read by several tasks.
ROWS, KEYS = 60_000, 10
SCHEMA = "k bigint, v bigint"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One csv file whose values rise within each key."""
    folder: Path = tmp_path_factory.mktemp("numbers")
    (folder / "rows.csv").write_text("".join(f"{i % KEYS},{i}\n" for i in range(ROWS)))
    return folder


def _read(numbers: Path) -> ps.Stream:
    return ps.read_files(str(numbers), schema=SCHEMA, format="csv")


def _last(numbers: Path) -> dict[int, int]:
    found = duckdb.sql(f"SELECT column0, max(column1) FROM read_csv('{numbers}/*.csv', header=false) GROUP BY 1")
    return dict(found.fetchall())


def _upserted(path: Path) -> dict[int, int]:
    with sqlite3.connect(path) as db:
        return dict(db.execute("SELECT k, v FROM newest"))


def _in_order(topic: Topic, expected: int) -> None:
    """Check that a topic has so many rows, and the values of each key in rising order."""
    values: dict[int, list[int]] = {}
    for message in topic.consume():
        row = json.loads(message.value())
        values.setdefault(row["k"], []).append(row["v"])
    assert sum(map(len, values.values())) == expected
    for key, found in values.items():
        assert found == sorted(found), f"key {key} is out of order"


# In short, each number of consumers once, on the session that all tests share.
OTHERS = [(3, 2, None), (1, 1, 1), (1, 2, 1), (1, 3, 1)]


@pytest.mark.parametrize(
    ("parallelism", "consumers", "cores"),
    [(3, 1, None), (3, 3, None), (1, 2, None), *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)],
)
def test_keyed_sinks_keep_order_with_one_two_and_three_consumers(
    parallelism: int,
    consumers: int,
    cores: int | None,
    numbers: Path,
    settings: Settings,
    tmp_path: Path,
    event_log: str,
) -> None:
    rows, topic = _read(numbers), fresh(event_log).create(2)
    guarantees: list[Any] = ["exactly_once", "at_least_once"]
    outputs = [
        rows.to(ps.table("newest", connection=f"sqlite:///{tmp_path}/rows.db", mode="upsert", key="k")),
        rows.to(ps.topic(topic.name, key="k", connection=event_log, guarantee=guarantees[consumers % 2])),
        rows.to(ps.files(str(tmp_path / "files"))),
    ]
    pipeline = ps.Pipeline(f"consumers-{consumers}", *outputs[:consumers])
    # One core too: such a container is where rows of two outputs met in one task.
    on = at_parallelism(settings, parallelism) if cores is None else replace(settings, parallelism=cores)
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=on)
    assert _upserted(tmp_path / "rows.db") == _last(numbers)
    if consumers > 1:
        _in_order(topic, ROWS)
    if consumers > 2:
        found = duckdb.sql(f"SELECT count(*), count(k), sum(v) FROM read_parquet('{tmp_path}/files/*.parquet')")
        assert found.fetchall() == [(ROWS, ROWS, sum(range(ROWS)))]


async def _passed_on(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _twice(row: dict[str, Any]) -> Iterator[Any]:
    yield row
    yield "odd", row
    yield {"k": row["k"], "v": row["v"]}


# Rows of every key from all pieces of the file.
@pytest.mark.parametrize("every", [30, pytest.param(10, marks=pytest.mark.slow)])
def test_python_functions_of_several_consumers_keep_order(
    every: int, numbers: Path, settings: Settings, tmp_path: Path, event_log: str
) -> None:
    rows = _read(numbers).filter(f"v div 10 % {every} = 0")
    called = rows.map_async(_passed_on, concurrency=1, ordered=True)
    several = rows.flat_map(_twice, sides={"odd": SCHEMA})
    topics = [fresh(event_log).create(2) for _ in range(3)]
    sinks = [ps.topic(topic.name, key="k", connection=event_log) for topic in topics]
    outputs = [stream.to(sink) for stream, sink in zip((called, several, several.side("odd")), sinks, strict=True)]
    pipeline = ps.Pipeline("functions", *outputs)
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=settings)
    for topic, times in zip(topics, (1, 2, 1), strict=True):
        _in_order(topic, times * ROWS // every)


def test_the_last_of_several_windows_of_a_key_replaces_the_earlier_ones(
    numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    timed = _read(numbers).with_columns(ts="timestamp_seconds(v)").event_time("ts", "1s").key_by("k")
    windows = timed.window(ps.tumbling("1000s")).aggregate(v="max(v)")
    upserts = ps.table("newest", connection=f"sqlite:///{tmp_path}/rows.db", mode="upsert", key="k")
    outputs = [windows.select("k", "v").to(upserts), windows.to(ps.files(str(tmp_path / "all")))]
    ps.Pipeline("windows", *outputs).run(until="ended", checkpoint=tmp_path / "checkpoint", settings=settings)
    assert _upserted(tmp_path / "rows.db") == _last(numbers)


def _newest(path: Path) -> ps.Sink:
    return ps.table("newest", connection=f"sqlite:///{path}/rows.db", mode="upsert", key="k")


def _run(stream: ps.Stream, path: Path, settings: Settings) -> dict[int, int]:
    """Return the last row of each key that a stream wrote."""
    pipeline = ps.Pipeline("order", stream.to(_newest(path)))
    pipeline.run(until="ended", checkpoint=path / "checkpoint", settings=settings)
    return _upserted(path / "rows.db")


def test_different_rows_are_in_the_order_in_which_each_came_first(
    numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    distinct = ps.sql("SELECT DISTINCT k, v % 2500 AS v FROM numbers", numbers=_read(numbers))
    files = f"read_csv('{numbers}/*.csv', header=false, names=['k', 'v'])"
    firsts = f"SELECT k, v % 2500 AS v, min(v) AS first FROM {files} GROUP BY ALL"
    expected = duckdb.sql(f"SELECT k, max_by(v, first) FROM ({firsts}) GROUP BY k").fetchall()
    assert _run(distinct, tmp_path, at_parallelism(settings, 3)) == dict(expected)


def _timed(numbers: Path) -> ps.Stream:
    return _read(numbers).filter("v < 6000").with_columns(ts="timestamp_seconds(v)").event_time("ts", "1s")


# Each has rows of a sink's key in many of its own keys.
REGROUPED = {
    "as-of join": lambda rows, other: rows.join_asof(other, "part"),
    "sessions": lambda rows, other: (
        rows.key_by("k", "part").window(ps.session("5s", max_length="1m")).aggregate(v="max(v)")
    ),
    "deduplication": lambda rows, other: (
        rows.key_by("k", "part").window(ps.tumbling("1s")).aggregate(v="max(v)").deduplicate(["part", "v"], within="1s")
    ),
    "full join": lambda rows, other: rows.join(other, "part", how="full", within=("0s", "0s")),
}


class Nothing(ps.Process):
    """Returns no row."""

    output = SCHEMA

    def on_row(self, row: Any, ctx: ps.Context) -> Iterator[Any]:
        yield from ()


def _windows(rows: ps.Stream) -> ps.Stream:
    return rows.key_by("k").window(ps.tumbling("100s")).aggregate(v="max(v)").select("k", "v")


@pytest.mark.parametrize("nearer", ["process", pytest.param("window", marks=pytest.mark.slow)])
def test_windows_beside_a_process_function_are_ordered_by_event_time(
    nearer: str, numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    rows = _timed(numbers)
    processed, windows = rows.key_by("k").process(Nothing()), _windows(rows)
    far = windows.filter("v >= 0").filter("k >= 0") if nearer == "process" else windows
    found = _run(processed.union(far), tmp_path, at_parallelism(settings, 3))
    assert found == {key: max(range(key, 6000, KEYS)) for key in range(KEYS)}


def test_the_last_window_of_a_key_is_the_row_of_a_view(numbers: Path, settings: Settings, tmp_path: Path) -> None:
    newest = _windows(_timed(numbers)).view("k")
    pipeline = ps.Pipeline("view", newest.to(_newest(tmp_path)))
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=at_parallelism(settings, 3))
    assert _upserted(tmp_path / "rows.db") == {key: max(range(key, 6000, KEYS)) for key in range(KEYS)}


@pytest.mark.parametrize(
    "how", [how if "join" in how else pytest.param(how, marks=pytest.mark.slow) for how in REGROUPED]
)
def test_results_of_other_keys_than_the_sinks_are_ordered_by_event_time(
    how: str, numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    rows = _timed(numbers).with_columns(part="(v div 10) % 7")
    other = _timed(numbers).select("ts", part="(v div 10) % 7", w="v")
    results = REGROUPED[how](rows, other.filter("w % 10 = 0")).select("k", "v")
    expected = {key: value for value in range(6000) for key in [value % KEYS]}
    assert _run(results, tmp_path, at_parallelism(settings, 3)) == expected


class Pieces(ps.Sink):
    """A user's sink with a key and no ledger: it writes the rows of each task to a file."""

    key = ("k",)

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = "pieces", str(folder)
        folder.mkdir()

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        rows = [row for batch in batches for row in batch.to_pylist()]
        Path(self.folder, f"{epoch.number}-{partition}.json").write_text(json.dumps(rows))

    def commit(self, epoch: ps.Epoch, tokens: Sequence[Any]) -> None:
        """Do nothing: rows may be written again."""


def test_a_users_keyed_sink_without_partitions_gets_all_rows_of_a_key_in_one_task_and_in_order(
    numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    found = _pieces(_read(numbers), tmp_path, settings)
    assert len(found) > 1


def test_a_key_of_doubles_is_not_split_either(numbers: Path, settings: Settings, tmp_path: Path) -> None:
    _pieces(_read(numbers).with_columns(k="cast(k AS double)"), tmp_path, settings)


def _pieces(stream: ps.Stream, path: Path, settings: Settings) -> list[list[dict[str, Any]]]:
    """Return the rows that each task wrote, all rows of a key by one of them and in order."""
    pipeline = ps.Pipeline("pieces", stream.to(Pieces(path / "out")))
    pipeline.run(until="ended", checkpoint=path / "checkpoint", settings=at_parallelism(settings, 3))
    found = [json.loads(piece.read_text()) for piece in (path / "out").iterdir()]
    assert sum(map(len, found)) == ROWS
    assert sum(len({row["k"] for row in rows}) for rows in found) == KEYS
    for rows in found:
        assert [row["v"] for row in rows] == sorted(row["v"] for row in rows)
    return found


def test_results_without_keys_of_their_groups_go_to_one_partition(
    numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    """A text shows the last digit of a sum of doubles, which a replay may change: it must not choose the partition."""
    sums = _timed(numbers).key_by("k").window(ps.tumbling("100s")).aggregate(total="sum(cast(v AS double) / 3)")
    texts, whole = UserSink(tmp_path / "texts"), UserSink(tmp_path / "whole")
    outputs = sums.select(text="cast(total AS string)").to(texts), sums.select("k", "total").to(whole)
    ps.Pipeline("texts", *outputs).run(
        until="ended", checkpoint=tmp_path / "checkpoint", settings=at_parallelism(settings, 3)
    )
    partitions = {sink.name: {path.stem[-1] for path in Path(sink.folder).glob("*.json")} for sink in (texts, whole)}
    assert len(texts.rows()) == len(whole.rows()) == 60 * KEYS
    assert partitions == {"texts": {"0"}, "whole": {"0", "1", "2"}}


def test_one_table_object_serves_two_outputs_with_other_columns(
    numbers: Path, settings: Settings, tmp_path: Path
) -> None:
    table = ps.table("newest", connection=f"sqlite:///{tmp_path}/out.db")
    rows = _read(numbers).filter("v < 100")
    outputs = rows.to(table).named("both"), rows.select("k").to(table).named("keys")
    ps.Pipeline("two", *outputs).run(until="ended", checkpoint=tmp_path / "checkpoint", settings=settings)
    with sqlite3.connect(tmp_path / "out.db") as db:
        assert db.execute("SELECT count(*), count(v), sum(v) FROM newest").fetchall() == [(200, 100, 4950)]
