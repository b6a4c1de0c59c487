"""Backpressure: a burst is read in bounded epochs, or its oldest rows are dropped and counted, in a replay too."""

from __future__ import annotations

import io
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connectors.files import stdin
from penstock.connectors.files.stdin import StdinSource
from penstock.connectors.generators.datagen import DataGen
from penstock.contracts import Epoch
from penstock.errors import BadValue, OverloadRefused, SinkFailed, UnknownSetting
from penstock.settings import Settings
from penstock.spark.tasks.admission import Admission, RateLimits
from penstock.spark.tasks.offset_files import FROM, rate_file
from penstock.storage.folders import LocalFolder
from tests.connectors.kafka_topics import SECONDS, Topic, fresh, until

ROW_SECONDS, TARGET_SECONDS = 0.001, 1.0
# An epoch takes at least as long as its rows, so from what it measures the limit cannot come to more than this.
BOUND = int(0.7 * TARGET_SECONDS / ROW_SECONDS)


def lines(first: int, last: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, last)]


def slowly(row: dict[str, Any]) -> dict[str, Any]:
    """An operator that cannot do more than a thousand rows a second, and takes no core from others meanwhile."""
    threading.Event().wait(ROW_SECONDS)
    return row


@pytest.fixture
def topic(event_log: str) -> Topic:
    return fresh(event_log, "pressure").create(partitions=1)


@pytest.fixture
def here(settings: Settings, event_log: str) -> Settings:
    return replace(settings, log=event_log)


class Seen:
    """What each epoch brought, as a sink."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[int]] = {}
        self.fails = False

    def __call__(self, epoch: Epoch, table: pa.Table) -> None:
        if self.fails:
            raise OSError("not now")
        self.epochs[epoch.number] = table.column("n").to_pylist()

    @property
    def rows(self) -> list[int]:
        return [n for number in sorted(self.epochs) for n in self.epochs[number]]


@pytest.mark.slow
def test_a_burst_is_absorbed_in_epochs_that_stay_within_their_bound(
    topic: Topic, here: Settings, tmp_path: Path
) -> None:
    """Promise: 20 times the steady rate makes no epoch grow past its bound, and everything comes out."""
    seen = Seen()
    rows = ps.read_topic(topic.name, schema="n bigint").map(slowly)
    pipeline = ps.Pipeline("burst", rows.to(ps.callback(seen)))
    run = pipeline.start(checkpoint=tmp_path / "c", settings=replace(here, epoch_target=f"{TARGET_SECONDS:.0f}s"))
    ratios = []
    for steady in range(3):
        topic.produce(lines(100 * steady, 100 * (steady + 1)))
        until(lambda: len(seen.rows) == 100 * (steady + 1))  # noqa: B023
    topic.produce(lines(300, 2_300))
    deadline = time.monotonic() + 4 * SECONDS
    while len(seen.rows) < 2_300 and time.monotonic() < deadline:
        run.wait(0.02)
        ratios.append(run.progress().backpressure_ratio)
    run.stop()
    run.wait()
    assert sorted(seen.rows) == list(range(2_300))
    burst = [len(rows) for rows in seen.epochs.values()][3:]
    assert len(burst) > 2
    assert max(burst) <= BOUND
    assert any(ratio and 0 < ratio < 1 for ratio in ratios)
    assert 0 < (run.report().backpressure_ratio or 0) < 1


def test_dropped_rows_are_the_oldest_are_counted_and_are_dropped_again_in_a_replay(
    topic: Topic, here: Settings, tmp_path: Path
) -> None:
    """Promise: the decision is in the offsets. What comes between a crash and the replay changes nothing."""
    seen = Seen()
    rows = ps.read_topic(topic.name, schema="n bigint")
    pipeline = ps.Pipeline("dropping", rows.to(ps.callback(seen)), overload="drop")
    where = {"checkpoint": tmp_path / "c", "settings": replace(here, max_lag_rows=1_000, epoch_rows=250)}
    topic.produce(lines(0, 3_000))
    seen.fails = True
    with pytest.raises(SinkFailed):
        pipeline.run(until="drained", **where)
    topic.produce(lines(3_000, 3_500))
    seen.fails = False
    report = pipeline.run(until="drained", **where)
    # 250 are read by the replayed epoch; of the 1,250 that wait then, 250 are too many.
    assert sorted(seen.epochs[0]) == list(range(2_000, 2_250))
    assert sorted(seen.rows) == [*range(2_000, 2_250), *range(2_500, 3_500)]
    counts = report.counts[topic.name]
    assert (counts.rows_in, counts.used, counts.dropped) == (3_500, 1_250, 2_250)
    assert "overload drop" in pipeline.explain()


def test_a_source_that_cannot_drop_is_refused_when_the_pipeline_is_built(here: Settings) -> None:
    items = ps.from_items([], "n bigint")
    with pytest.raises(OverloadRefused, match=r"ItemSource cannot report its lag") as refused:
        ps.Pipeline("p", items.to(ps.collect()), overload="drop")
    assert 'overload="block"' in str(refused.value)
    with pytest.raises(OverloadRefused, match=r"read 'trades': DataGen cannot report its lag"):
        ps.Pipeline("p", ps.datagen("trades", rows=5).to(ps.collect()), overload="drop")
    with pytest.raises(BadValue, match="unknown overload policy 'flood'"):
        ps.Pipeline("p", items.to(ps.collect()), overload="flood")  # type: ignore[arg-type]
    topics = ps.read_topic("a", schema="n bigint")
    with pytest.raises(OverloadRefused, match="realtime"):
        ps.Pipeline("p", topics.to(ps.topic("b")), pace="realtime", overload="drop")
    dropping = ps.Pipeline("p", topics.to(ps.topic("b")), overload="drop")
    with pytest.raises(UnknownSetting, match="kafka_reader"):
        dropping.run(settings=replace(here, kafka_reader="spark"))


def test_overload_is_part_of_the_plan_and_is_explained() -> None:
    clicks = ps.read_topic("clicks", schema="n bigint").union(ps.read_stdin(schema="n bigint", format="json"))
    pipeline = ps.Pipeline("p", clicks.to(ps.files("out")), overload="spill")
    assert "stdin is read into the checkpoint at once; clicks stores its rows anyway" in pipeline.explain()
    again = ps.Pipeline.from_json(pipeline.to_json())
    assert again.overload == "spill"
    assert again.paced(pace="fast").overload == "spill"
    assert again.paced(overload="block").to_json() != pipeline.to_json()


@pytest.mark.parametrize("spills", [False, True])
def test_a_sender_that_is_far_ahead_waits_unless_the_job_spills(
    spills: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin, "AHEAD", 1 << 20)
    whole = b"a line\n" * 500_000
    source, sender = StdinSource(), io.BytesIO(whole)
    source.stream, source.spills = sender, spills
    source.open(LocalFolder(tmp_path))
    source.start_background()
    spool = tmp_path / "spool"
    until(lambda: spool.exists() and spool.stat().st_size >= (len(whole) if spills else 1 << 20))
    if not spills:
        assert spool.stat().st_size < (1 << 20) + (1 << 17)
        assert sender.tell() < len(whole)
    places = [{"0": 0}]
    until(lambda: places.append(source.latest(places[-1], None)) or source.ended(places[-1]))
    assert places[-1] == {"0": len(whole)}
    source.stop_background()


def test_the_planner_learns_from_each_epoch_once_and_repeats_what_it_dropped(tmp_path: Path) -> None:
    source = DataGen("trades", rate=1_000)
    source.now = lambda: 100.0  # type: ignore[method-assign]
    source._started = 0.0
    notes = LocalFolder(tmp_path)
    admission = Admission(source, RateLimits(first=500, lag_rows=60_000), notes, "final")
    assert admission.end({"0": 0}) == {"0": 40_500, FROM: [{"0": 40_000}, 40_000]}
    assert admission.held == 59_500
    notes.write(rate_file("final"), json.dumps([0, 500, 0.5]).encode())
    assert admission.end({"0": 40_500, FROM: [{"0": 40_000}, 40_000]}) == {"0": 40_500 + 3_500}
    assert admission.end({"0": 44_000}) == {"0": 47_500}
    settled = {"0": 100_000, FROM: [{"0": 40_000}, 40_000]}
    assert admission.end(settled) == settled
