"""Promise: whatever is killed, every job ends RUNNING again, none twice, none forgotten, and outputs are exact."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import httpx
import pytest

from penstock.control.store.repositories.jobs import Job, new_id
from penstock.control.store.repositories.versions import Version
from tests.crash.control_jobs import JOBS, Numbers, found, source
from tests.crash.control_world import World, world
from tests.databases import PostgresServer
from tests.waiting import wait_for

FEWEST_ROUNDS = 2
# However often they are killed: the default gives up after ten failures.
POLICY = {"kind": "fixed_delay", "delay": 0.2, "attempts": None}
# Most share a driver, as many small jobs do; the others have one of their own.
ALONE = 2


def _chance() -> random.Random:
    seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"PENSTOCK_TEST_SEED={seed}")
    return random.Random(seed)


def _rounds(there: World, rounds: int, names: list[str]) -> None:
    there.settle()
    for number in range(rounds):
        fault = names[number % len(names)] if number < len(names) else there.chance.choice(names)
        print(f"round {number + 1}: {fault}", flush=True)
        there.faults[fault]()
        there.settle()
        assert {job: there.runs_of(job) for job in there.jobs} == dict.fromkeys(there.jobs, 1)


def test_killed_managers_drivers_and_databases_lose_no_job(
    tmp_path: Path, postgres: PostgresServer, pytestconfig: pytest.Config
) -> None:
    """The short form: drivers are real processes, and their jobs are scripts instead of Spark."""
    chance = _chance()
    rounds = max(FEWEST_ROUNDS, pytestconfig.getoption("--crash-runs"))
    with world(tmp_path, postgres, chance, scripted=True) as there:
        there.jobs = [_stored(there, number) for number in range(JOBS)]
        names = ["manager and driver", "database and manager", "driver", "database", "manager"]
        _rounds(there, rounds, names)
        checkpoints = [tmp_path / "data" / "checkpoints" / job for job in there.jobs]
        assert [path.name for path in checkpoints if (path / "twice").exists()] == []
        before = {path: int((path / "epoch").read_text()) for path in checkpoints}
        for path, epoch in before.items():
            wait_for(lambda path=path, epoch=epoch: int((path / "epoch").read_text()) > epoch, "no epochs")  # type: ignore[misc]
        assert there.manager.tracebacks == 0, there.manager.said[-3000:]


def _stored(there: World, number: int) -> str:
    """Store a job as a submission does, but for the check of its plan."""
    job, arguments = new_id(), {"behaviour": "run"}
    pool = None if number < 2 * ALONE else "small"
    with there.store.begin() as write:
        checkpoint = str(there.folder / "data" / "checkpoints" / job)
        write.jobs.create(Job(id=job, name=f"copy-{number}", policy=POLICY, checkpoint=checkpoint, pool=pool))
        write.versions.add(Version(job=job, number=1, entry="job.py", digest="", arguments=arguments))
    return job


def test_every_row_is_written_once_whatever_is_killed(
    tmp_path: Path, postgres: PostgresServer, pytestconfig: pytest.Config
) -> None:
    """The long form, on Spark: make crash-control."""
    rounds = pytestconfig.getoption("--crash-runs")
    if rounds < 2:
        pytest.skip("long: make crash-control")
    chance = _chance()
    with world(tmp_path, postgres, chance, scripted=False) as there:
        numbers = Numbers(there.log.bootstrap)
        numbers.start()
        there.jobs = [_submitted(there, part, tmp_path / f"out-{part}") for part in range(JOBS)]
        _rounds(there, rounds, [*there.faults])
        numbers.stop()
        for part in range(JOBS):
            expected = list(range(part, numbers.sent, JOBS))
            folder = tmp_path / f"out-{part}"
            wait_for(lambda folder=folder, expected=expected: len(found(folder)) >= len(expected), seconds=300)  # type: ignore[misc]
            assert found(folder) == expected
        print(f"{numbers.sent} rows, each once")


def _submitted(there: World, part: int, folder: Path) -> str:
    form = {"name": f"copy-{part}", "restart_policy": json.dumps(POLICY), "parallelism": "1"}
    if part >= ALONE:
        form["pool"] = "small"
    files = {"file": (f"copy_{part}.py", source(part, folder))}
    answer = httpx.post(f"{there.manager.url}/api/v1/jobs", data=form, files=files, timeout=120)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])
