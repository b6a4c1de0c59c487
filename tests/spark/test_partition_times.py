"""Decisions on partitions, without Spark: which time an epoch reaches, who is idle, and who waits in a backlog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.contracts import Offsets
from penstock.folders import folder
from penstock.plan.nodes import EventTime
from penstock.plan.queries import time_key
from penstock.spark.epochs.alignment import Alignment
from penstock.spark.epochs.idle_watch import IdleWatch
from penstock.spark.epochs.notes import PlannedPartitions
from penstock.spark.epochs.partition_times import Advance
from penstock.spark.epochs.records import Records, Totals
from penstock.spark.lowering.slots import Slots

SLOTS = Slots("t", 1, ("0", "1", "2"))
SECOND = 1_000_000


def planned(read: str = "", waiting: str = "", there: Mapping[str, int] | None = None) -> PlannedPartitions:
    return PlannedPartitions(there or {"0": 9, "1": 9, "2": 9, "id": 7}, [*read], [*waiting])


def test_the_smallest_partition_counts_and_one_without_a_time_is_left_out() -> None:
    advance = Advance()
    advance.add(SLOTS, {1: 50, 2: 20}, planned("01"))
    assert (advance.newest, advance.reached) == ({"t/0": 50, "t/1": 20}, 20)
    advance.add(SLOTS, {1: 40, 2: 30}, planned("01"))
    assert (advance.newest, advance.reached) == ({"t/0": 50, "t/1": 30}, 30)


def test_a_partition_whose_rows_were_not_read_yet_holds_the_watermark() -> None:
    advance = Advance({"t/0": 50})
    advance.add(SLOTS, {}, planned("0", waiting="02"))
    assert advance.reached is None
    assert Advance().reached is None


def test_later_partitions_share_a_slot_and_none_is_taken_to_be_further_than_it_is() -> None:
    advance = Advance({"t/8": 25})
    # Of the shared slot the smallest time of the epoch is known; partition 8 was not read in it.
    advance.add(SLOTS, {1: 50, 4: 30}, planned("079"))
    assert advance.newest == {"t/8": 25, "t/0": 50, "t/7": 30, "t/9": 30}
    advance.forget_gone({"t/0", "t/7", "t/9"})
    assert advance.reached == 30


def test_a_record_of_an_older_penstock_has_no_partitions_and_still_loads(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text(json.dumps({"epochs": 4, "rows": {}, "counts": {}, "newest": {"k": 7}}))
    assert Records(folder(tmp_path)).newest() == Totals(4, newest={"k": 7})


def event_time(idle_after: str | None, name: str = "t") -> EventTime:
    node = ps.from_items([], "ts timestamp").named(name).event_time("ts", "5s", idle_after=idle_after).node
    assert isinstance(node, EventTime)
    return node


def lifts(watch: IdleWatch, totals: Totals, now: float) -> list[int]:
    return [at for _, at in watch.lifts(totals, now)]


def test_an_idle_partition_is_left_out_and_if_all_are_the_furthest_counts() -> None:
    time = event_time("30s")
    key, watch = time_key(time), IdleWatch([time], partitioned=True)
    totals = Totals(newest={key: 10}, partitions={key: {"t/0": 10, "t/1": 40, "t/2": 30}})
    assert watch.needed
    watch.look({time: {"t/0": 1, "t/1": 1, "t/2": 1, "t/3": 0}}, 0)
    watch.look({time: {"t/0": 1, "t/1": 2, "t/2": 2, "t/3": 0}}, 31)
    assert watch.idle_partitions(time) == {"t/0", "t/3"}
    assert not watch.is_idle(time)
    assert lifts(watch, totals, 31) == [30]
    assert lifts(watch, totals, 31.5) == []
    watch.look({time: {"t/0": 1, "t/1": 2, "t/2": 2, "t/3": 0}}, 62)
    assert watch.is_idle(time)
    assert lifts(watch, totals, 62) == [40]
    watch.look({time: {"t/0": 2, "t/1": 2, "t/2": 2, "t/3": 0}}, 63)
    assert watch.idle_partitions(time) == {"t/1", "t/2", "t/3"}


def test_without_idle_after_a_partition_is_waited_for() -> None:
    watch = IdleWatch([event_time(None)], partitioned=True)
    assert not watch.needed


def test_an_idle_source_follows_the_others_and_a_partition_that_gave_no_time_is_waited_for() -> None:
    idle, other = event_time("30s", "idle"), event_time(None, "other")
    watch = IdleWatch([idle, other])
    totals = Totals(newest={time_key(idle): 10, time_key(other): 90}, partitions={time_key(other): {"o/0": 90}})
    watch.look({idle: {"": "[]"}, other: {"o/0": 1, "o/1": 0}}, 0)
    watch.look({idle: {"": "[]"}, other: {"o/0": 2, "o/1": 0}}, 40)
    assert [*watch.lifts(totals, 40)] == [(time_key(idle), 90)]
    ready = IdleWatch([other], partitioned=True)
    ready.look({other: {"o/0": 2, "o/1": 0}}, 0)
    assert lifts(ready, totals, 40) == []


class Backlog(ps.Source):
    """Three partitions of a thousand rows; a limit is shared out."""

    name = "t"
    schema = ps.Schema("v bigint")

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        more = 1000 if max_rows is None else max_rows // 3
        return {part: min(1000, int(start.get(part) or 0) + more) for part in ("0", "1", "2")}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[Any]:
        raise NotImplementedError


@pytest.fixture
def alignment(tmp_path: Path) -> Alignment:
    return Alignment(SLOTS, (("k", 5 * SECOND),), folder(tmp_path / "q"), folder(tmp_path / "r"))


def known(alignment: Alignment, **seconds: int) -> None:
    """Write the record of the epoch before the first that is planned, as seen from an empty query folder."""
    newest = {f"t/{name[1:]}": at * SECOND for name, at in seconds.items()}
    Records(alignment.records).write(-1, Totals(partitions={"k": newest}))


def test_in_a_backlog_a_partition_far_ahead_waits_for_the_others(alignment: Alignment) -> None:
    source, start = Backlog(), {"0": 10, "1": 10, "2": 10}
    end = source.latest(start, 300)
    known(alignment, p0=100, p1=105, p2=106)
    assert alignment.aligned(source, start, end, 300) == {"0": 110, "1": 110, "2": 10}
    known(alignment, p0=100, p1=105, p2=105)
    assert alignment.aligned(source, start, end, 300) == end
    known(alignment, p0=100, p2=106)
    # Of partition 1 nothing is known yet: it is read, and nobody waits for it.
    assert alignment.aligned(source, start, end, 300) == {"0": 110, "1": 110, "2": 10}


def test_nobody_waits_for_a_partition_without_a_backlog(alignment: Alignment) -> None:
    source, start = Backlog(), {"0": 1000, "1": 10, "2": 10}
    known(alignment, p0=0, p1=100, p2=300)
    end = source.latest(start, 300)
    assert alignment.aligned(source, start, end, 300) == {"0": 1000, "1": 110, "2": 10}
    start = {"0": 1000, "1": 1000, "2": 10}
    assert alignment.aligned(source, start, source.latest(start, 300), 300) == {"0": 1000, "1": 1000, "2": 110}


def test_something_is_read_even_if_the_source_gives_nothing_of_the_slowest(alignment: Alignment) -> None:
    class Favouring(Backlog):
        def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
            return {"0": 20, "1": 20, "2": 20} if max_rows is None else {"0": 10, "1": 10, "2": 20}

    known(alignment, p0=0, p1=0, p2=300)
    start = {"0": 10, "1": 10, "2": 10}
    assert alignment.aligned(Favouring(), start, {"0": 10, "1": 10, "2": 20}, 5) == {"0": 10, "1": 10, "2": 20}
