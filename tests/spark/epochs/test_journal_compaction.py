"""Promise: journal entries that no kept epoch needs are dropped, and restarts and replays go on counting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.tasks.control_journal import TIMERS, ControlJournal, DeclaredTimes
from penstock.spark.tasks.offset_files import TICKS
from penstock.storage.folders import folder
from penstock.storage.journals import BATCH
from tests.conftest import at
from tests.spark.checkpoints.damaged_jobs import Reminder
from tests.spark.stateful_jobs import expected, feed, job, written

EPOCHS, EACH = 6, 30


def test_a_running_job_drops_fired_timers_and_declared_times(settings: Settings, tmp_path: Path) -> None:
    few, checkpoint = replace(settings, checkpoint_retention=2), tmp_path / "checkpoint"
    (tmp_path / "in").mkdir()
    rows = ps.read_files(str(tmp_path / "in"), schema="k string, v bigint, ts timestamp", format="json")
    reminded = rows.event_time("ts", "5s").key_by("k").process(Reminder)
    run = ps.Pipeline("p", reminded.to(ps.collect())).start(checkpoint=checkpoint, settings=few)
    feed(tmp_path / "in", 0)
    run.process_available()
    ((node, buckets),) = json.loads((checkpoint / "rings-final.json").read_bytes()).items()
    fired, more = json.dumps([[node, int(next(iter(buckets)))]]).encode(), 4
    for _ in range(more):
        for _ in range(BATCH):
            # Nothing is due yet, and the time is before all rows: neither gives a row.
            run.checkpoint.timers.declare(fired)
            run.checkpoint.tick(at(0))
        run.process_available()
    run.stop()
    run.wait()
    timers, ticks = ControlJournal(folder(checkpoint), TIMERS), DeclaredTimes(folder(checkpoint))
    assert (timers.end(), ticks.end()) == (more * BATCH, more * BATCH)
    assert timers.first > 0
    assert ticks.first > 0
    history = History(folder(checkpoint / "queries" / "final"))
    by_source = inspect(folder(checkpoint)).queries["final"].offsets
    assert by_source[TIMERS] == {"0": more * BATCH}
    oldest = history.offsets(history.logged[0])[[*by_source].index(TIMERS)]
    assert timers.first <= oldest["0"]
    assert inspect(folder(checkpoint)).all_damaged == {}


@pytest.mark.slow
def test_a_job_drops_declared_times_and_replays_its_newest_epoch_after_a_restart(
    settings: Settings, tmp_path: Path
) -> None:
    few, checkpoint = replace(settings, checkpoint_retention=2), tmp_path / "checkpoint"
    run = job(tmp_path).start(checkpoint=checkpoint, settings=few)
    for number in range(EPOCHS):
        for _ in range(EACH):
            # Before all rows, so that it moves no watermark.
            run.checkpoint.tick(at(0))
        feed(tmp_path / "in", number)
        run.process_available()
    run.stop()
    run.wait()
    ticks, query = DeclaredTimes(folder(checkpoint)), checkpoint / "queries" / "final"
    assert ticks.end() == EPOCHS * EACH
    assert ticks.first > EACH
    history = History(folder(query))
    assert ticks.first <= history.offsets(history.logged[0])[0][TICKS]
    assert history.offsets(history.last)[0][TICKS] == EPOCHS * EACH

    create_savepoint(folder(checkpoint), folder(tmp_path / "savepoints"), "a")
    restore_savepoint(folder(tmp_path / "savepoints" / "a"), folder(tmp_path / "restored"))
    assert DeclaredTimes(folder(tmp_path / "restored")).end() == EPOCHS * EACH

    # As after a kill -9 before the commit.
    for name in (str(history.last), f".{history.last}.crc"):
        (query / "commits" / name).unlink()
    feed(tmp_path / "in", EPOCHS)
    job(tmp_path).run(until="ended", checkpoint=checkpoint, settings=few)
    assert written(tmp_path / "out") == expected(EPOCHS + 1)
    assert inspect(folder(checkpoint)).all_damaged == {}
