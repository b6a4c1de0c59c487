"""Promise: after a power cut no epoch needs results that are deleted: its commit and its state are durable before."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.storage.folders import LocalFolder
from tests.spark.stateful_jobs import feed, on

FED = 3


def asking(data: Path) -> ps.Pipeline:
    """Sums per key and window of what a function answers, which is never the same."""
    (data / "in").mkdir(parents=True, exist_ok=True)
    rows = ps.read_files(str(data / "in"), schema="k string, v bigint, ts timestamp", format="json")
    answered = rows.event_time("ts", "5s").map(lambda row: row | {"v": random.getrandbits(20)}, deterministic=False)
    sums = answered.key_by("k").window(ps.tumbling("10s")).aggregate(total="sum(v)")
    return ps.Pipeline("asking", sums.to(ps.files(str(data / "out"))))


@pytest.mark.parametrize("state", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_a_commit_and_its_state_are_durable_before_stored_results_are_deleted(
    state: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "checkpoint"
    query = where / "queries" / "final"
    fsync, remove = os.fsync, LocalFolder.remove
    synced: set[Path] = set()
    unsynced: dict[int, set[Path]] = {}

    def noted(handle: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def checked(folder: LocalFolder, name: str) -> None:
        if folder.local.name in ("outbox", "answers") and name.isdigit():
            unsynced[int(name)] = needed(query, int(name)) - synced
        remove(folder, name)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(LocalFolder, "remove", checked)
    run = asking(tmp_path).start(checkpoint=where, settings=on(settings, state))
    for number in range(FED):
        feed(tmp_path / "in", number)
        run.process_available()
    run.stop()
    run.wait()
    assert len(unsynced) >= FED - 1
    assert not set().union(*unsynced.values())


def needed(query: Path, epoch: int) -> set[Path]:
    """What the epoch left, without which it would run again: files and the folders with their names."""
    of_state = [*query.glob("state/0/*/*"), *query.glob("state/0/_metadata/*"), *query.glob("state/0/*/_metadata/*")]
    stems = {str(epoch + 1), "metadata", "schema"}
    state = [path for path in of_state if path.is_file() and path.name.removeprefix(".").split(".")[0] in stems]
    commit = [query / "commits" / str(epoch), query / "commits" / f".{epoch}.crc"]
    assert len(state) > 2
    files = {*state, *commit}
    return files | {path.parent for path in files}
