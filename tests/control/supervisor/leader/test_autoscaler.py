"""Decisions are made over the stored series, recorded with their metrics, and carried out by a stored command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.control.machine.job import Job as MachineJob
from penstock.control.machine.states import JobState
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.leases import MANAGER
from penstock.control.store.rollup import Sample
from penstock.control.store.store import Store
from penstock.control.supervisor.event_bus import EventBus
from penstock.control.supervisor.leader.autoscaler import REQUESTED_BY, autoscale

LAG = {"kind": "lag", "up": 2000, "down": 10, "maximum": 8, "up_cooldown": 60}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'jobs.db'}") as opened:
        opened.migrate()
        yield opened


def term(store: Store, policy: dict[str, Any], parallelism: int = 2, started_at: float | None = None) -> Any:
    """An active manager with one running job."""
    token = store.leases.acquire(MANAGER, "test", 60)
    fields: dict[str, Any] = {"parallelism": parallelism, "autoscaling": policy, "started_at": started_at}
    job = store.jobs.create(Job(id="j1", name="prices", state="RUNNING", run="j1-1", **fields))
    machine = MachineJob(id="j1", name="prices", state=JobState.RUNNING, run="j1-1", parallelism=parallelism)
    return SimpleNamespace(
        store=store,
        token=token,
        clock=time.time,
        bus=EventBus(time.time),
        jobs={"j1": job},
        machines={"j1": machine},
    )


def record_lag(store: Store, lag: float, growth: float = 100.0) -> None:
    """A lag that grows, measured every ten seconds over the last two minutes."""
    now = time.time()
    for step in range(12):
        at = now - 120 + 10 * step
        values = {"source_lag_rows": lag + growth * step, "rows_per_second": 5.0, "parallelism": 2.0}
        store.series.record(Sample("j1", metric, at, value) for metric, value in values.items())


def test_a_growing_lag_is_answered_by_a_stored_rescale_with_its_metrics(store: Store) -> None:
    active = term(store, LAG)
    record_lag(store, 50_000)
    asyncio.run(autoscale(active))
    (command,) = store.commands.open()
    assert (command.kind, command.requested_by) == ("rescale", REQUESTED_BY)
    assert command.arguments["parallelism"] > 2
    (decision,) = store.transitions.page("j1").items
    assert "lag" in decision.cause
    assert (store.jobs.get("j1").autoscaling or {})["state"]["parallelism"] == command.arguments["parallelism"]


def test_a_dry_run_records_the_decision_and_does_not_act(store: Store) -> None:
    active = term(store, {**LAG, "dry_run": True})
    record_lag(store, 50_000)
    asyncio.run(autoscale(active))
    assert store.commands.open() == []
    assert "would rescale" in store.transitions.page("j1").items[0].cause


def test_a_small_lag_changes_nothing(store: Store) -> None:
    active = term(store, LAG)
    record_lag(store, 1000, growth=0)
    asyncio.run(autoscale(active))
    assert store.commands.open() == []
    assert store.transitions.page("j1").items == ()


@pytest.mark.parametrize(("started_before", "acts"), [(100, True), (5, False)])
def test_after_a_rollback_it_decides_over_what_was_measured_since(
    store: Store, started_before: float, acts: bool
) -> None:
    """Promise: a parallelism that others have set does not silence the autoscaler; it only begins the series anew."""
    now = time.time()
    remembered = {"parallelism": 4, "changed_at": now - 150, "not_enough": []}
    active = term(store, {**LAG, "state": remembered}, started_at=now - started_before)
    record_lag(store, 50_000)
    asyncio.run(autoscale(active))
    assert [command.kind for command in store.commands.open()] == (["rescale"] if acts else [])
