from __future__ import annotations

import pytest

from penstock.control.store.repositories.jobs import Job, new_id
from penstock.control.store.repositories.versions import Version
from penstock.control.store.rollup import Sample
from penstock.control.store.store import Store
from penstock.errors import JobExists, UnknownJob
from tests.control.store.clocks import SetClock


def test_a_job_is_read_as_it_was_written(store: Store, clock: SetClock) -> None:
    job = Job(
        id="a1",
        name="vwap",
        policy={"kind": "none"},
        settings={"spark": {"b": "1", "a": "2"}},
        arguments={"window": "60s", "n": 3},
        cores=1.5,
        labels={"team": "prices"},
        machine={"wake_at": None, "seen": ["1", "2"]},
        error={"type": "SinkFailed", "message": "NUL \0, a lone surrogate \ud800 and 漢字"},
    )
    created = store.jobs.create(job)
    assert created.created_at == created.updated_at == clock.now
    assert store.jobs.get("a1") == created
    assert list(store.jobs.get("a1").settings["spark"]) == ["b", "a"]


def test_texts_that_postgresql_cannot_store_are_stored_without_those_characters(store: Store) -> None:
    store.jobs.create(Job(id="a1", name="vwap"))
    store.jobs.update("a1", reason="nul \0 and \ud800 and 漢字")
    assert store.jobs.get("a1").reason == "nul \ufffd and ? and 漢字"


def test_numbers_that_json_does_not_have_are_null(store: Store) -> None:
    store.jobs.create(Job(id="a1", name="vwap", progress={"lag": float("nan"), "rates": [float("inf"), 1.0]}))
    assert store.jobs.get("a1").progress == {"lag": None, "rates": [None, 1.0]}


def test_a_name_is_taken_until_its_job_is_deleted(store: Store) -> None:
    store.jobs.create(Job(id="a1", name="vwap"))
    with pytest.raises(JobExists, match="job a1, CREATED"):
        store.jobs.create(Job(id="a2", name="vwap"))
    assert store.jobs.delete("a1")
    assert not store.jobs.delete("a1")
    store.jobs.create(Job(id="a2", name="vwap"))
    assert store.jobs.named("vwap") == store.jobs.get("a2")


def test_a_job_cannot_be_renamed_to_a_taken_name(store: Store) -> None:
    for number in (1, 2):
        store.jobs.create(Job(id=f"a{number}", name=f"job-{number}"))
    with pytest.raises(JobExists):
        store.jobs.update("a2", name="job-1")


def test_a_job_is_found_by_its_id_before_its_name(store: Store) -> None:
    store.jobs.create(Job(id="a1", name="vwap"))
    store.jobs.create(Job(id="a2", name="a1"))
    assert store.jobs.get("a1").name == "vwap"
    assert store.jobs.get("vwap").id == "a1"


def test_an_unknown_job_is_an_error_that_suggests_a_close_name(store: Store) -> None:
    store.jobs.create(Job(id="a1", name="vwap-60s"))
    with pytest.raises(UnknownJob) as error:
        store.jobs.get("vwap-6s")
    assert "did you mean 'vwap-60s'?" in str(error.value)
    with pytest.raises(UnknownJob):
        store.jobs.update("a9", state="RUNNING")
    assert store.jobs.find("a9") is None


def test_a_deleted_job_is_unknown(store: Store) -> None:
    store.jobs.create(Job(id="a1", name="vwap"))
    store.jobs.delete("a1")
    assert store.jobs.find("a1") is store.jobs.named("vwap") is None
    assert store.jobs.all() == []
    with pytest.raises(UnknownJob):
        store.jobs.update("a1", state="RUNNING")


def test_an_update_changes_only_what_it_names(store: Store, clock: SetClock) -> None:
    before = store.jobs.create(Job(id="a1", name="vwap", arguments={"n": 1}))
    clock.advance(5)
    store.jobs.update("a1", state="RUNNING", pid=4711, error=None)
    after = store.jobs.get("a1")
    assert (after.state, after.pid, after.updated_at) == ("RUNNING", 4711, before.updated_at + 5)
    assert (after.arguments, after.created_at) == (before.arguments, before.created_at)


def test_jobs_are_listed_by_state_and_by_part_of_the_name(store: Store, clock: SetClock) -> None:
    for name, state in [("Orders_1", "RUNNING"), ("orders%2", "FAILED"), ("clicks", "RUNNING")]:
        clock.advance(1)
        store.jobs.create(Job(id=new_id(), name=name, state=state))

    def names(**filters: object) -> list[str]:
        return [job.name for job in store.jobs.page(**filters).items]  # type: ignore[arg-type]

    assert names() == ["clicks", "orders%2", "Orders_1"]
    assert names(states=["RUNNING"]) == ["clicks", "Orders_1"]
    assert names(name="orders") == ["orders%2", "Orders_1"]
    assert names(name="%") == ["orders%2"]
    assert names(name="_") == ["Orders_1"]
    assert names(name="ORDERS", states=["FAILED", "STOPPED"]) == ["orders%2"]
    assert names(name="\0") == names(name="\\") == []
    assert [job.name for job in store.jobs.all(["RUNNING"])] == ["Orders_1", "clicks"]
    assert store.jobs.counts() == {"RUNNING": 2, "FAILED": 1}


def test_a_job_that_was_deleted_long_ago_is_removed_with_its_history(store: Store, clock: SetClock) -> None:
    for name in ("old", "kept"):
        store.jobs.create(Job(id=name, name=name))
        store.versions.add(Version(job=name, number=1, entry="a.py", digest="d"))
        store.transitions.add(name, None, "CREATED", "submitted")
        store.commands.add(name, "stop")
        store.series.record([Sample(name, "lag", clock.now, 1.0)])
    store.jobs.delete("old")
    store.prune()
    assert store.transitions.page("old").items
    clock.advance(8 * 86_400)
    store.prune()
    assert store.transitions.page("old").items == store.versions.page("old").items == ()
    assert store.series.names("old") == []
    assert [command.job for command in store.commands.open()] == ["kept"]
    assert store.series.names("kept")
