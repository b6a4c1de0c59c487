"""Decisions on partitions, without Spark: which time an epoch reaches, who is idle, and who waits in a backlog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import Offsets
from penstock.plan.operators.stateless import EventTime, Read
from penstock.plan.physical.queries import time_key
from penstock.spark.epochs.idle import IdleWatch
from penstock.spark.epochs.partition_watermarks import Advance
from penstock.spark.tasks.admission import Alignment
from penstock.spark.tasks.offset_files import PlannedPartitions
from penstock.spark.tasks.source_partitions import NewestByPartition
from penstock.spark.tasks.totals import Totals, TotalsLog
from penstock.storage.folders import folder

SECOND = 1_000_000


class Backlog(ps.Source):
    """Three partitions of a thousand rows; a limit is shared out."""

    name = "t"
    schema = ps.Schema("v bigint")

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        more = 1000 if max_rows is None else max_rows // 3
        return {part: min(1000, int(start.get(part) or 0) + more) for part in ("0", "1", "2")}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[Any]:
        raise NotImplementedError


READ = Read(source=Backlog())


def after(before: dict[str, int], seen: dict[str, int], waiting: str = "", there: str = "012") -> Advance:
    """Return what an epoch does that saw these times."""
    advance = Advance(before)
    advance.add(seen, {READ: PlannedPartitions([*there], [*waiting])}, {READ: "t"})
    return advance


def test_the_smallest_partition_counts_and_one_without_a_time_is_left_out() -> None:
    first = after({}, {"t/0": 50, "t/1": 20})
    assert (first.newest, first.reached) == ({"t/0": 50, "t/1": 20}, 20)
    second = after(first.newest, {"t/0": 40, "t/1": 30})
    assert (second.newest, second.reached) == ({"t/0": 50, "t/1": 30}, 30)


def test_a_partition_whose_rows_were_not_read_yet_holds_the_watermark() -> None:
    assert after({"t/0": 50}, {}, waiting="02").reached is None
    assert after({"t/0": 50}, {"t/2": 10}, waiting="2").reached == 10
    assert Advance().reached is None


def test_a_partition_that_is_gone_holds_nobody_back() -> None:
    assert after({"t/0": 50, "t/2": 10}, {}, there="01").reached == 50


def test_the_newest_time_of_each_partition_is_found_among_the_rows_of_a_task() -> None:
    found = NewestByPartition()
    found.add(pa.array([7, 7]), pa.array([5, 90]), pa.array([False, True]))
    found.add(pa.array([7, 8, 8]), pa.array([4, 6, None]), pa.array([False, False, True]))
    found.add(pa.array([], pa.int64()), pa.array([], pa.int64()), pa.array([], pa.bool_()))
    assert found.found == {7: 5, 8: 6}


def test_a_record_of_an_older_penstock_has_no_partitions_and_still_loads(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text(json.dumps({"epochs": 4, "rows": {}, "counts": {}, "newest": {"k": 7}}))
    assert TotalsLog(folder(tmp_path)).newest() == Totals(4, newest={"k": 7})


def event_time(idle_after: str | None, name: str = "t") -> EventTime:
    node = ps.from_items([], "ts timestamp").named(name).event_time("ts", "5s", idle_after=idle_after).node
    assert isinstance(node, EventTime)
    return node


def lifts(watch: IdleWatch, totals: Totals, now: float) -> list[int]:
    return [at for _, at in watch.times_to_declare(totals, now)]


def test_an_idle_partition_is_left_out_and_if_all_are_the_furthest_counts() -> None:
    time = event_time("30s")
    key, watch = time_key(time), IdleWatch([time], partitioned=True)
    totals = Totals(newest={key: 10}, partitions={key: {"t/0": 10, "t/1": 40, "t/2": 30}})
    assert watch.needed
    watch.observe({time: {"t/0": 1, "t/1": 1, "t/2": 1, "t/3": 0}}, 0)
    watch.observe({time: {"t/0": 1, "t/1": 2, "t/2": 2, "t/3": 0}}, 31)
    assert watch.idle_partitions(time) == {"t/0", "t/3"}
    assert not watch.is_idle(time)
    assert lifts(watch, totals, 31) == [30]
    assert lifts(watch, totals, 31.5) == []
    watch.observe({time: {"t/0": 1, "t/1": 2, "t/2": 2, "t/3": 0}}, 62)
    assert watch.is_idle(time)
    assert lifts(watch, totals, 62) == [40]
    watch.observe({time: {"t/0": 2, "t/1": 2, "t/2": 2, "t/3": 0}}, 63)
    assert watch.idle_partitions(time) == {"t/1", "t/2", "t/3"}


def test_without_idle_after_a_partition_is_waited_for() -> None:
    watch = IdleWatch([event_time(None)], partitioned=True)
    assert not watch.needed


def test_an_idle_source_follows_the_others_and_a_partition_that_gave_no_time_is_left_out() -> None:
    idle, other = event_time("30s", "idle"), event_time(None, "other")
    watch = IdleWatch([idle, other])
    totals = Totals(newest={time_key(idle): 10, time_key(other): 90}, partitions={time_key(other): {"o/0": 90}})
    watch.observe({idle: {"": "[]"}, other: {"o/0": 1, "o/1": 0}}, 0)
    watch.observe({idle: {"": "[]"}, other: {"o/0": 2, "o/1": 0}}, 40)
    assert [*watch.times_to_declare(totals, 40)] == [(time_key(idle), 90)]
    time = event_time("30s", "other")
    watch = IdleWatch([time], partitioned=True)
    totals = Totals(newest={time_key(time): 5}, partitions={time_key(time): {"o/0": 90, "o/2": 5}})
    watch.observe({time: {"o/0": 2, "o/1": 0, "o/2": 0}}, 0)
    watch.observe({time: {"o/0": 3, "o/1": 7, "o/2": 0}}, 40)
    assert lifts(watch, totals, 40) == [90]


@pytest.fixture
def alignment(tmp_path: Path) -> Alignment:
    return Alignment("t", (("k", 5 * SECOND),), folder(tmp_path / "q"), folder(tmp_path / "r"))


def known(alignment: Alignment, **seconds: int) -> None:
    """Write the record of the epoch before the first that is planned, as seen from an empty query folder."""
    newest = {f"t/{name[1:]}": at * SECOND for name, at in seconds.items()}
    TotalsLog(alignment.records).write(-1, Totals(partitions={"k": newest}))


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


def test_what_a_slow_partition_leaves_goes_to_those_far_ahead(alignment: Alignment) -> None:
    class Sharing(Backlog):
        def latest_of(self, start: Offsets, max_rows: int | None, only: Any) -> Offsets:
            end = self.latest(start, None)
            left, made = max_rows or 0, dict(start)
            for part in only:
                made[part] = min(int(end[part]), int(start[part]) + left)
                left -= int(made[part]) - int(start[part])
            return made

    known(alignment, p0=0, p1=0, p2=3000)
    start = {"0": 995, "1": 1000, "2": 10}
    assert alignment.aligned(Sharing(), start, {}, 300) == {"0": 1000, "1": 1000, "2": 305}


def test_nobody_waits_while_all_that_is_there_may_be_read(alignment: Alignment) -> None:
    class Live(Backlog):
        def lag(self, offsets: Offsets) -> int:
            return 30

    known(alignment, p0=0, p1=0, p2=3000)
    assert alignment.aligned(Live(), {"0": 990, "1": 990, "2": 990}, {"0": 1000}, 300) == {"0": 1000}


def test_something_is_read_even_if_the_source_gives_nothing_of_the_slowest(alignment: Alignment) -> None:
    class Favouring(Backlog):
        def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
            return {"0": 20, "1": 20, "2": 20} if max_rows is None else {"0": 10, "1": 10, "2": 20}

    known(alignment, p0=0, p1=0, p2=300)
    start = {"0": 10, "1": 10, "2": 10}
    assert alignment.aligned(Favouring(), start, {"0": 10, "1": 10, "2": 20}, 5) == {"0": 10, "1": 10, "2": 20}


def test_a_partition_that_has_rows_is_waited_for_until_some_are_read(alignment: Alignment) -> None:
    totals = Totals(partitions={"k": {"t/0": 5}})
    assert alignment.waiting(Backlog(), {"0": 0, "1": 0, "2": 10}, totals) == ["1"]
    assert alignment.waiting(Backlog(), {"0": 10, "1": 1, "2": 1000}, totals) == []
