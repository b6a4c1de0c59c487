"""Promise: while the database is away jobs go on and /ready says so; then the manager recovers, nothing is doubled."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.control.machine.states import JobState
from penstock.control.rest.app import create_app
from penstock.control.security.tokens import Access
from tests.control.rest.serving import serving
from tests.control.supervisor.running_manager import RunningManager, running_manager
from tests.databases import PostgresServer
from tests.waiting import wait_for

# Of scripted jobs, which commit one every 0.05 s.
EPOCHS_A_MINUTE = 1200
PIPELINE = b"raise SystemExit('never built: the store is asked first')"


@contextmanager
def manager_on(postgres: PostgresServer, data: Path) -> Iterator[tuple[RunningManager, httpx.Client]]:
    database = f"jobs_{secrets.token_hex(4)}"
    postgres.sql(f"CREATE DATABASE {database} OWNER ada", postgres.admin)
    with running_manager(data, url=postgres.url.removesuffix("/shop") + f"/{database}") as manager:
        app = create_app(manager.manager, Access(manager.store.tokens))
        with serving(app) as url, httpx.Client(base_url=url, timeout=20, trust_env=False) as api:
            yield manager, api


@contextmanager
def stopped(postgres: PostgresServer) -> Iterator[None]:
    postgres.stop("immediate")
    try:
        yield
    finally:
        postgres.start()


def epochs_of(manager: RunningManager, job: str) -> int:
    """Return how many epochs the driver has committed."""
    return int((manager.checkpoint(job) / "epoch").read_text()) + 1


def outage_of(epochs: int, postgres: PostgresServer, data: Path) -> None:
    with manager_on(postgres, data) as (manager, api):
        jobs = [manager.add("prices"), manager.add("trades", pool="small"), manager.add("orders", pool="small")]
        for job in jobs:
            manager.wait_for_state(job, JobState.RUNNING)
        pids = {job: manager.get(job).pid for job in jobs}
        assert api.get("/ready").json() == {"ready": True, "checks": [{"name": "store", "ok": True, "detail": None}]}
        with stopped(postgres):
            # Longer than the lease: the manager has stopped acting by then.
            wait_for(lambda: not manager.leadership.is_active, "the manager still acts without a lease")
            refused(api)
            for job in jobs:
                wait_for_epochs(manager, job, epochs)
            refused(api)
        wait_for(lambda: api.get("/ready").status_code == 200, "the manager is not ready again")
        wait_for(lambda: manager.leadership.is_active, "the manager does not act again")
        for job in jobs:
            wait_for_recorded(api, job, epochs_of(manager, job))
            numbers = recorded(api, job)
            assert numbers == sorted(set(numbers), reverse=True), "an epoch is recorded twice"
            assert (len(manager.starts(job)), manager.ran_twice(job)) == (1, False)
            assert api.get(f"/api/v1/jobs/{job}").json()["restarts"] == 0
        assert {job: manager.get(job).pid for job in jobs} == pids
        assert api.get("/api/v1/jobs").json()["next"] is None
        assert manager.wait_for_command(manager.request(jobs[0], "stop")) == "done"


def wait_for_epochs(manager: RunningManager, job: str, epochs: int) -> None:
    last = epochs_of(manager, job)
    wait_for(lambda: epochs_of(manager, job) > last + epochs, "the job does not go on", seconds=epochs + 60)


def wait_for_recorded(api: httpx.Client, job: str, epoch: int) -> None:
    wait_for(lambda: recorded(api, job)[0] > epoch, "new epochs are not recorded")


def recorded(api: httpx.Client, job: str) -> list[int]:
    """Return the newest epochs that the store has."""
    items = api.get(f"/api/v1/jobs/{job}/epochs", params={"limit": 500}).json()["items"]
    return [item["number"] for item in items] or [-1]


def refused(api: httpx.Client) -> None:
    """Every request but /health is answered with a problem that names the store."""
    ready = api.get("/ready")
    assert (ready.status_code, ready.json()["errors"][0]["field"]) == (503, "store")
    assert api.get("/health").status_code == 200
    for answer in (
        api.get("/api/v1/jobs"),
        api.post("/api/v1/jobs", files={"file": ("job.py", PIPELINE)}),
        api.post("/api/v1/jobs/prices/stop"),
        api.get("/metrics"),
    ):
        assert (answer.status_code, answer.json()["title"]) == (503, "StoreUnavailable"), answer.text
        assert "running jobs go on" in answer.json()["hint"]
        assert answer.headers["retry-after"]


def test_jobs_go_on_while_the_database_is_away(postgres: PostgresServer, tmp_path: Path) -> None:
    outage_of(10, postgres, tmp_path)
    assert [*(tmp_path / "versions").glob("*/2")] == []


@pytest.mark.slow
def test_jobs_go_on_while_the_database_is_away_for_a_minute(postgres: PostgresServer, tmp_path: Path) -> None:
    outage_of(EPOCHS_A_MINUTE, postgres, tmp_path)
