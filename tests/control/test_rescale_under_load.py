"""Promise: a job that falls behind is rescaled under load, by lag, and its output is as if nothing had happened."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import httpx
import pytest

from tests.crash.control_jobs import Numbers
from tests.crash.control_world import World, world
from tests.crash.outputs import of_files
from tests.databases import PostgresServer
from tests.waiting import wait_for

KEYS, WINDOW = 7, 10
PIPELINE = """
import penstock as ps

numbers = ps.read_topic("numbers", schema="id bigint", start="earliest")
windows = numbers.key_by(k="id % {keys}").window(ps.count_window({window})).aggregate(first="min(id)", last="max(id)")
pipeline = ps.Pipeline("windows", windows.to(ps.files("{folder}")))
"""
# Few rows in an epoch, so that the job is slow.
SETTINGS = {"state": "rocksdb", "epoch_rows": 100}
LAG = {"kind": "lag", "up": 500, "down": 1, "in_flight": 1, "maximum": 2, "up_cooldown": 1, "down_cooldown": 3600}
# So many rows it is behind, and so many more each second, however fast the machine is. A lag that shrinks fast enough
# is no reason to rescale, and one that grows without bound is not worked off by a busy machine.
BEHIND, GROWTH = 3000, 20


@pytest.mark.slow
def test_a_job_that_falls_behind_is_rescaled_and_its_output_is_exact(tmp_path: Path, postgres: PostgresServer) -> None:
    out = tmp_path / "out"
    with world(tmp_path, postgres, random.Random(1), scripted=False) as there:
        numbers = Numbers(there.log.bootstrap, per_second=1000)
        numbers.most = BEHIND
        numbers.start()
        job = _submitted(there, out)
        there.jobs = [job]
        since = time.monotonic()

        def is_rescaled() -> bool:
            done = WINDOW * len(_written(out))
            numbers.most = done + BEHIND + GROWTH * (time.monotonic() - since)
            return _job(there, job)["parallelism"] == 2

        wait_for(is_rescaled, "it was not rescaled", seconds=300, poll=1)
        numbers.stop()
        there.settle()
        expected = sorted(_windows(numbers.sent))
        wait_for(lambda: len(_written(out)) >= len(expected), "it does not catch up", seconds=600, poll=1)
        assert _written(out) == expected
        causes = [one["cause"] for one in _get(there, f"jobs/{job}/transitions")["items"]]
        assert any("lag" in cause for cause in causes), causes


def _submitted(there: World, out: Path) -> str:
    form = {
        "name": "windows",
        "parallelism": "1",
        "settings": json.dumps(SETTINGS),
        "autoscaling": json.dumps(LAG),
    }
    text = PIPELINE.format(keys=KEYS, window=WINDOW, folder=out)
    files = {"file": ("windows.py", text.encode())}
    answer = httpx.post(f"{there.manager.url}/api/v1/jobs", data=form, files=files, timeout=120)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def _get(there: World, path: str) -> dict[str, object]:
    answer = httpx.get(f"{there.manager.url}/api/v1/{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def _job(there: World, job: str) -> dict[str, object]:
    return _get(there, f"jobs/{job}")


def _windows(sent: int) -> list[tuple[int, int, int]]:
    """Return the windows of all numbers: each key's, ten at a time, in the order of the topic."""
    keys = [list(range(key, sent, KEYS)) for key in range(KEYS)]
    full = [(key, start) for key, ids in enumerate(keys) for start in range(0, len(ids) - WINDOW + 1, WINDOW)]
    return [(key, keys[key][start], keys[key][start + WINDOW - 1]) for key, start in full]


def _written(out: Path) -> list[tuple[int, int, int]]:
    return sorted((int(row["k"]), int(row["first"]), int(row["last"])) for row in of_files(out))
