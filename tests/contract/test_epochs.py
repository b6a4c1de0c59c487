"""Promise: all sinks of a pipeline, its late and rejected rows too, show the same epochs, whatever dies between."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.sinks.collect import from_ipc, to_ipc
from penstock.errors import SinkFailed
from penstock.settings import Settings
from tests.conftest import at
from tests.connectors.kafka_topics import Topic, fresh


class Dying(ps.Sink):
    """A sink that dies once, at the commit of an epoch, and after that keeps its rows in memory."""

    guarantee = "exactly_once"

    def __init__(self, folder: Path, epoch: int, step: str = "commit") -> None:
        self.name, self._note, self._epoch, self._step = "dying", folder / "died", epoch, step
        self.rows: list[dict[str, Any]] = []

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        if self._step == "prepare":
            raise ValueError("no room")
        return to_ipc(batches)

    def commit(self, epoch: ps.Epoch, tokens: Sequence[bytes]) -> None:
        if epoch.number == self._epoch and not self._note.exists():
            self._note.touch()
            raise ValueError("the lights went out")
        self.rows += [row for token in tokens for batch in from_ipc(token) for row in batch.to_pylist()]


class Placed(ps.Sink):
    """A sink that asks for its rows in three partitions, and notes in which each one came."""

    guarantee = "exactly_once"
    partitions = 3
    key = ("k",)

    def __init__(self) -> None:
        self.name = "placed"
        self.places: set[tuple[str, int]] = set()

    def prepare(self, epoch: ps.Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> set[tuple[str, int]]:
        return {(row["k"], partition) for batch in batches for row in batch.to_pylist()}

    def commit(self, epoch: ps.Epoch, tokens: Sequence[set[tuple[str, int]]]) -> None:
        self.places |= set().union(*tokens)


def events() -> ps.Stream:
    rows: list[Any] = [{"k": f"k{n % 7}", "n": n, "ts": at(n)} for n in range(28)]
    # By then, in the third epoch, the watermark is past its window.
    rows += [{"k": "late", "n": 100, "ts": at(1)}, b"{", {"k": "end", "n": 101, "ts": at(30)}]
    return ps.from_items(rows, "k string, n bigint, ts timestamp").named("events")


def windows(stream: ps.Stream, late_to: ps.Sink | None = None) -> ps.Stream:
    keyed = stream.event_time("ts", "1s").key_by("k")
    return keyed.window(ps.tumbling("10s"), late_to=late_to).aggregate(n="count(*)", total="sum(n)")


def documents(topic: Topic) -> list[dict[str, Any]]:
    for partition in topic.partitions:
        topic.settle(partition)
    return [json.loads(message.value()) for message in topic.consume()]


def in_epochs(settings: Settings) -> Settings:
    return replace(settings, epoch_rows=12)


def test_what_a_crash_between_two_commits_left_is_completed(event_log: str, settings: Settings, tmp_path: Path) -> None:
    names = ("sums", "rows", "late", "bad")
    topics = {name: fresh(event_log, name) for name in names}
    sums, rows, late, bad = (ps.topic(topics[name].name, connection=event_log) for name in names)
    placed, dying = Placed(), Dying(tmp_path, epoch=1)
    stream = events()
    outputs = (
        windows(stream, late).to(sums),
        stream.to(rows),
        stream.filter("k != 'end'").to(placed),
        stream.filter("n >= 0").to(dying),
    )
    pipeline = ps.Pipeline("p", *outputs, rejected_to=bad)
    with pytest.raises(SinkFailed, match=r"write 'dying': Dying could not commit: ValueError: the lights went out"):
        pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=in_epochs(settings))
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=in_epochs(settings))
    found = {name: documents(topic) for name, topic in topics.items()}
    assert sorted(row["n"] for row in found["rows"]) == [*range(28), 100, 101]
    assert [row["n"] for row in found["late"]] == [100]
    assert [row["node"] for row in found["bad"]] == ["events"]
    assert sum(row["n"] for row in found["sums"]) == 29
    assert sorted(row["n"] for row in dying.rows) == [*range(28), 100, 101]
    assert {name: report.rows[topics[name].name] for name in names} == {"sums": 22, "rows": 30, "late": 1, "bad": 1}
    # Every key comes in several epochs, before and after the crash.
    assert len(placed.places) == len({key for key, _ in placed.places}) == 8
    assert {partition for _, partition in placed.places} <= {0, 1, 2}


def test_what_is_not_deterministic_is_the_same_in_all_sinks_after_a_crash(settings: Settings, tmp_path: Path) -> None:
    def guess(row: dict[str, Any]) -> dict[str, Any]:
        return {"n": row["n"], "luck": random.SystemRandom().random()}

    guessed = events().map(guess, "n bigint, luck double", deterministic=False)
    kept, dying = ps.collect(), Dying(tmp_path, epoch=1)
    pipeline = ps.Pipeline("p", guessed.to(kept), guessed.filter("luck >= 0").to(dying))
    assert (
        "rows wait in the checkpoint until all sinks have them, for map 'map' is not deterministic"
        in pipeline.explain()
    )
    with pytest.raises(SinkFailed, match="the lights went out"):
        pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=in_epochs(settings))
    pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=in_epochs(settings))
    assert {row["n"]: row["luck"] for row in kept.rows} == {row["n"]: row["luck"] for row in dying.rows}
    assert len(kept.rows) == len(dying.rows) == 30


def test_at_most_once_leaves_out_the_epoch_of_a_crash_and_counts_it(
    event_log: str, settings: Settings, tmp_path: Path
) -> None:
    topic = fresh(event_log).create(1)
    sink = ps.topic(topic.name, connection=event_log, guarantee="at_most_once")
    stream = events()
    pipeline = ps.Pipeline("p", stream.to(sink), stream.to(Dying(tmp_path, epoch=1)))
    with pytest.raises(SinkFailed):
        pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=in_epochs(settings))
    before = len(documents(topic))
    report = pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=in_epochs(settings))
    found = [row["n"] for row in documents(topic)]
    assert len(found) == len(set(found)) == 30
    assert report.counts[topic.name].dropped == before - 12
    assert report.rows[topic.name] == 30 - report.counts[topic.name].dropped


def test_a_users_sink_that_raises_in_a_task_is_named(settings: Settings, tmp_path: Path) -> None:
    pipeline = ps.Pipeline("p", events().to(Dying(tmp_path, 0, step="prepare")))
    with pytest.raises(SinkFailed, match=r"write 'dying': Dying could not take the rows: ValueError: no room"):
        pipeline.run(until="ended", checkpoint=tmp_path / "c", settings=settings)
