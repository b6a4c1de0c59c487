"""A store as after years of use: jobs that have ended, with their versions and epochs."""

from __future__ import annotations

from pathlib import Path

from penstock.control.machine.failure import Failure
from penstock.control.machine.job import Job as MachineJob
from penstock.control.machine.states import FINAL, JobState
from penstock.control.store.repositories.epochs import Epoch
from penstock.control.store.repositories.jobs import Job, new_id
from penstock.control.store.repositories.versions import Version
from penstock.control.store.store import Store

# Ended, so that the manager has nothing to do for them but to answer requests.
STATES = sorted(FINAL)
_BEGIN = 1_790_000_000.0
_PHASES = {"addBatch": 180, "getBatch": 12, "queryPlanning": 25, "walCommit": 14, "commitOffsets": 11}


def fill(data: Path, jobs: int, epochs: int) -> list[str]:
    """Store jobs and, spread evenly, epochs in the SQLite store of a data folder; return the ids of the jobs."""
    ids = [new_id() for _ in range(jobs)]
    with Store(f"sqlite:///{data / 'penstock.db'}") as store:
        store.migrate()
        with store.begin() as write:
            for number, job in enumerate(ids):
                write.jobs.create(_job(job, number))
                write.versions.add(Version(job=job, number=1, entry="job.py", digest="0" * 64, plan={"nodes": []}))
        with store.begin() as write:
            for number, job in enumerate(ids):
                first, last = number * epochs // jobs, (number + 1) * epochs // jobs
                write.epochs.add(_epoch(job, epoch) for epoch in range(last - first))
    return ids


def _job(job: str, number: int) -> Job:
    name, state = f"orders-{number:05d}", STATES[number % len(STATES)]
    error = Failure("SinkFailed", "the disk is full", "free some space") if state is JobState.FAILED else None
    machine = MachineJob(id=job, name=name, state=state, parallelism=2, attempt=1, restarts=number % 7, error=error)
    return Job(
        id=job,
        name=name,
        state=state,
        entry="job.py",
        attempt=machine.attempt,
        restarts=machine.restarts,
        parallelism=machine.parallelism,
        policy=machine.policy.to_json(),
        until="stopped",
        started_at=_BEGIN + number,
        ended_at=_BEGIN + number + 3600,
        error=error.to_json() if error else None,
        settings={"parallelism": 2, "spark": {"spark.sql.shuffle.partitions": "2"}},
        arguments={"topic": f"orders-{number}", "password": "${secret:ORDERS}"},
        checkpoint=f"/data/checkpoints/{job}",
        machine=machine.to_json(),
        progress={"rows_in_per_s": 1000.0, "lag": 12, "epoch": 99, "rows_in": 100_000},
        created_at=_BEGIN + number,
        created_by="ada",
    )


def _epoch(job: str, number: int) -> Epoch:
    at = _BEGIN + 10 * number
    return Epoch(
        job=job,
        number=number,
        run=f"{job}-1",
        at=at,
        rows_in=1000,
        rows_out=900,
        duration_ms=240,
        phases=_PHASES,
        watermark=at - 5,
    )
