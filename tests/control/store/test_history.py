from __future__ import annotations

import pytest

from penstock.control.store.repositories import epochs, exceptions, transitions
from penstock.control.store.repositories.epochs import Epoch
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.runs import Run
from penstock.control.store.repositories.savepoints import Savepoint
from penstock.control.store.repositories.versions import Version
from penstock.control.store.store import Store
from penstock.errors import UnknownJob
from tests.control.store.clocks import SetClock

MONTH = 30 * 86_400


@pytest.fixture(autouse=True)
def jobs(store: Store) -> None:
    store.jobs.create(Job(id="a", name="first"))
    store.jobs.create(Job(id="b", name="second"))


def test_transitions_are_numbered_for_each_job(store: Store, clock: SetClock) -> None:
    store.transitions.add("a", None, "CREATED", "submitted")
    store.transitions.add("b", None, "CREATED", "submitted")
    last = store.transitions.add("a", "CREATED", "STARTING", "it fits")
    assert (last.seq, last.at) == (2, clock.now)
    assert [each.to_state for each in store.transitions.page("a").items] == ["STARTING", "CREATED"]


def test_the_oldest_transitions_make_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "PER_JOB", 3)
    for number in range(5):
        store.transitions.add("a", None, "RUNNING", str(number))
    assert [each.seq for each in store.transitions.page("a").items] == [5, 4, 3]


def test_an_epoch_that_is_reported_twice_is_stored_once(store: Store) -> None:
    first = Epoch(job="a", number=1, at=10.0, rows_in=5, phases={"scan": 3.5}, watermark=9.0, duration_ms=1.5)
    store.epochs.add([first])
    again = Epoch(job="a", number=1, at=11.0, rows_in=6)
    store.epochs.add([Epoch(job="a", number=2, at=12.0), again])
    store.epochs.add([])
    assert [epoch.number for epoch in store.epochs.page("a").items] == [2, 1]
    assert store.epochs.page("a").items[1] == again
    assert store.epochs.newest("a") == Epoch(job="a", number=2, at=12.0)
    assert store.epochs.newest("b") is None


def test_the_oldest_epochs_make_room_in_their_own_job(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "PER_JOB", 3)
    store.epochs.add([Epoch(job="b", number=0, at=0.0)])
    store.epochs.add([Epoch(job="a", number=number, at=0.0) for number in range(7)])
    assert [epoch.number for epoch in store.epochs.page("a").items] == [6, 5, 4]
    assert [epoch.number for epoch in store.epochs.page("b").items] == [0]


def test_epochs_after_a_restore_point_are_forgotten(store: Store) -> None:
    store.epochs.add([Epoch(job=job, number=number, at=0.0) for job in "ab" for number in range(4)])
    assert store.epochs.forget_after("a", 1) == 2
    assert [epoch.number for epoch in store.epochs.page("a").items] == [1, 0]
    assert len(store.epochs.page("b").items) == 4


def test_versions_are_listed_without_their_plans(store: Store) -> None:
    plan = {"nodes": [{"name": "vwap"}]}
    assert store.versions.next_number("a") == 1
    for number in (1, 2):
        store.versions.add(Version(job="a", number=number, entry="a.py:main", digest=str(number), plan=plan))
    assert store.versions.next_number("a") == 3
    assert [(each.number, each.plan) for each in store.versions.page("a").items] == [(2, None), (1, None)]
    assert store.versions.get("a", 2).plan == plan
    with pytest.raises(UnknownJob, match="no version 3"):
        store.versions.get("a", 3)


def test_a_new_manager_finds_the_runs_that_have_not_ended(store: Store, clock: SetClock) -> None:
    spare = store.runs.add(Run(id="r0", pid=10, process_started=5.5, socket="/tmp/r0/driver.sock", token=1))
    store.runs.add(Run(id="r1", job="a", version=1, started_at=clock.now - 2))
    store.runs.add(Run(id="r2", job="a", version=1, started_at=clock.now - 1))
    assert store.runs.update("r1", ended_at=clock.now, outcome="failed", exit_code=-9, error={"type": "X"})
    assert not store.runs.update("r9", pid=1)
    assert [run.id for run in store.runs.running()] == ["r2", "r0"]
    assert [run.id for run in store.runs.running(["a"])] == ["r2"]
    assert store.runs.find("r0") == spare
    assert store.runs.find("r9") is None
    assert [run.id for run in store.runs.page("a").items] == ["r2", "r1"]


def test_a_run_that_is_stored_again_replaces_itself(store: Store) -> None:
    store.runs.add(Run(id="r1", job="a"))
    changed = store.runs.add(Run(id="r1", job="b", pid=7))
    assert store.runs.running() == [changed]


def test_runs_that_ended_a_month_ago_are_deleted(store: Store, clock: SetClock) -> None:
    store.runs.add(Run(id="r1", job="a", ended_at=clock.now))
    store.runs.add(Run(id="r2", job="a"))
    clock.advance(MONTH + 1)
    store.prune()
    assert [run.id for run in store.runs.page("a").items] == ["r2"]


def test_a_savepoint_changes_its_state(store: Store) -> None:
    first = store.savepoints.put(Savepoint(job="a", name="s1", path="/s/s1", created_at=1.0))
    store.savepoints.put(Savepoint(job="a", name="s2", path="/s/s2", created_at=2.0, version=2))
    done = store.savepoints.put(Savepoint(job="a", name="s1", path="/s/s1", created_at=1.0, state="complete"))
    assert first.state == "creating"
    assert store.savepoints.find("a", "s1") == done
    assert [each.name for each in store.savepoints.page("a").items] == ["s2", "s1"]
    assert store.savepoints.remove("a", "s1")
    assert not store.savepoints.remove("a", "s1")
    assert store.savepoints.find("a", "s1") is None


def test_the_oldest_errors_make_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exceptions, "PER_JOB", 3)
    store.exceptions.add("b", "SinkFailed", "other", at=1.0)
    for number in range(5):
        store.exceptions.add("a", "SinkFailed", f"message {number}", hint="wait", run="r1")
    found = store.exceptions.page("a").items
    assert [each.message for each in found] == ["message 4", "message 3", "message 2"]
    assert (found[0].hint, found[0].run) == ("wait", "r1")
    assert len(store.exceptions.page("b").items) == 1
