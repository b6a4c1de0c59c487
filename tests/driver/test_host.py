"""The host of a driver: jobs from assignment to outcome, without Spark."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.driver import host as module
from penstock.driver.host import DriverHost
from penstock.driver.messages import Message
from penstock.driver.outcome import Outcome
from penstock.errors import BadEntry, FunctionFailed
from tests.driver.fake_runtime import FakeRuntime, assignment, store_failed
from tests.waiting import wait_for


class Driver:
    """A host with a fake runtime; `events` are those that it published."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.runtime = folder, FakeRuntime()
        self.host = DriverHost(folder, self.runtime, clock=lambda: 1000.0, **options)
        self.events: list[Message] = []
        self.host.publish = self.events.append

    def kinds(self, job: str = "j1") -> list[str]:
        return [event["kind"] for event in self.events if event["job"] == job]

    def event(self, kind: str, job: str = "j1") -> Message:
        def found() -> list[Message]:
            return [event for event in self.events if (event["kind"], event["job"]) == (kind, job)]

        wait_for(found, f"no event {kind}: {self.events}", seconds=10)
        return found()[-1]

    def outcome(self, job: str = "j1") -> Message:
        content: Message = json.loads((self.folder / f"outcome-{job}.json").read_bytes())
        return content


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def running(driver: Driver, job: str = "j1", **fields: Any) -> None:
    driver.host.run(assignment(job, **fields))
    driver.event("running", job)


def test_a_job_that_finishes_reports_its_epochs_and_its_outcome_and_ends_the_driver(driver: Driver) -> None:
    running(driver)
    run = driver.runtime.runs["j1"]
    run.commit(0, 10)
    driver.event("epoch")
    run.commit(1, 5)
    run.finish()
    assert driver.host.wait(10)
    assert driver.kinds() == ["loading", "running", "epoch", "epoch", "ended"]
    assert [event["rows_in"] for event in driver.events if event["kind"] == "epoch"] == [10, 5]
    assert driver.events[3]["totals"]["rows_in"] == 15
    assert driver.events[-1]["outcome"] == driver.outcome()["outcome"] == "finished"
    assert driver.events[-1]["report"]["epochs"] == 2
    assert driver.host.exit_code == 0
    assert driver.runtime.over == ["j1"]


def test_a_job_that_fails_has_its_error_in_the_outcome_and_the_exit_code_of_the_command_line(driver: Driver) -> None:
    running(driver)
    driver.runtime.runs["j1"].fail(FunctionFailed("f raised", node="map 'f'", hint="look at line 3"))
    assert driver.host.wait(10)
    error = driver.outcome()["error"]
    assert (error["type"], error["message"], error["hint"]) == ("FunctionFailed", "map 'f': f raised", "look at line 3")
    assert driver.outcome()["outcome"] == "failed"
    assert driver.host.exit_code == 1


def test_a_mistake_in_the_pipeline_ends_the_driver_with_code_2_before_it_runs(driver: Driver) -> None:
    driver.runtime.refuses = BadEntry("job.py has no pipeline")
    driver.host.run(assignment())
    assert driver.host.wait(10)
    assert driver.kinds() == ["loading", "ended"]
    assert driver.host.exit_code == 2


def test_secrets_are_not_in_an_error(driver: Driver) -> None:
    driver.runtime.refuses = BadEntry("cannot log in with hunter22")
    driver.host.run(assignment(environment={"LOGIN": "hunter22"}))
    assert driver.host.wait(10)
    assert "hunter22" not in json.dumps([driver.events, driver.outcome()])


def test_stop_creates_the_savepoint_after_the_job_has_stopped(driver: Driver) -> None:
    running(driver)
    assert driver.host.handle({"type": "stop", "job": "j1", "savepoint": "before"}) is None
    assert driver.host.wait(10)
    assert driver.kinds() == ["loading", "running", "stopping", "savepoint", "ended"]
    assert driver.outcome()["outcome"] == "stopped"
    assert driver.outcome()["savepoint"] == "before"
    assert driver.event("savepoint")["path"] == "s/before"


def test_a_savepoint_that_fails_is_reported_and_the_job_stops_as_asked(driver: Driver) -> None:
    running(driver)
    driver.runtime.savepoint_error = store_failed()
    driver.host.handle({"type": "stop", "job": "j1", "savepoint": "before"})
    assert driver.host.wait(10)
    assert driver.event("savepoint_failed")["error"]["transient"] is True
    assert driver.outcome()["outcome"] == "stopped"
    assert driver.outcome()["savepoint"] is None


def test_a_job_goes_on_after_a_savepoint_whether_it_fails_or_not(driver: Driver) -> None:
    running(driver)
    driver.runtime.savepoint_error = store_failed()
    driver.host.handle({"type": "savepoint", "job": "j1", "savepoint": "one"})
    driver.event("savepoint_failed")
    driver.runtime.savepoint_error = None
    driver.host.handle({"type": "savepoint", "job": "j1", "savepoint": "two"})
    driver.event("savepoint")
    assert driver.host.hello()["jobs"] == {"j1": "running"}


def test_a_repeated_request_for_a_savepoint_is_answered_and_not_carried_out_twice(driver: Driver) -> None:
    running(driver)
    for _ in range(2):
        driver.host.handle({"type": "savepoint", "job": "j1", "savepoint": "one"})
        driver.event("savepoint")
    wait_for(lambda: driver.kinds().count("savepoint") == 2)
    assert driver.runtime.savepoints == [("j1", "one")]


def test_a_stop_while_the_job_is_loading_is_not_lost(driver: Driver) -> None:
    driver.runtime.held = threading.Event()
    driver.host.run(assignment())
    driver.host.handle({"type": "stop", "job": "j1"})
    driver.runtime.held.set()
    assert driver.host.wait(10)
    assert driver.outcome()["outcome"] == "stopped"


def test_cancel_does_not_wait_for_the_epoch(driver: Driver) -> None:
    running(driver)
    driver.host.handle({"type": "cancel", "job": "j1"})
    assert driver.host.wait(10)
    assert driver.runtime.runs["j1"].aborted
    assert driver.outcome()["outcome"] == "canceled"
    assert driver.host.exit_code == 0


def test_a_canceled_job_that_does_not_end_ends_with_its_process(tmp_path: Path) -> None:
    driver = Driver(tmp_path, cancel_seconds=0.05)
    driver.runtime.deaf = True
    running(driver)
    driver.host.handle({"type": "cancel", "job": "j1"})
    assert driver.host.wait(10)
    assert driver.outcome()["outcome"] == "canceled"
    driver.runtime.runs["j1"].finish()


def test_jobs_of_a_pool_have_their_own_failure_and_stop(driver: Driver) -> None:
    for job in ("a", "b", "c"):
        running(driver, job, pool="small")
    driver.runtime.runs["a"].fail(FunctionFailed("f raised"))
    driver.event("ended", "a")
    driver.host.handle({"type": "stop", "job": "b"})
    driver.event("ended", "b")
    assert driver.host.hello()["jobs"] == {"a": "ended", "b": "ended", "c": "running"}
    assert not driver.host.wait(0)
    running(driver, "a", pool="small", attempt=2)
    driver.host.exit()
    assert driver.host.wait(10)
    assert driver.outcome("a")["attempt"] == 2
    assert driver.outcome("c")["outcome"] == "stopped"
    assert driver.host.exit_code == 0


def test_a_driver_does_not_end_before_the_outcomes_of_all_jobs_are_written(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, write = threading.Event(), Outcome.write

    def slow_write(outcome: Outcome, folder: Path) -> None:
        assert outcome.job == "b" or disk.wait(30)
        write(outcome, folder)

    monkeypatch.setattr(Outcome, "write", slow_write)
    for job in ("a", "b"):
        running(driver, job, pool="small")
    driver.host.exit()
    driver.event("ended", "b")
    driver.host.exit()
    assert not driver.host.wait(0)
    disk.set()
    assert driver.host.wait(10)
    assert driver.outcome("a")["outcome"] == "stopped"


def test_a_second_job_outside_of_the_pool_is_rejected(driver: Driver) -> None:
    running(driver)
    answer = driver.host.handle({"type": "run", "job": "j2", "target": "job.py", "checkpoint": "c"})
    assert answer is not None
    assert "runs job j1" in answer["message"]
    assert driver.event("ended", "j2")["error"]["transient"] is True
    assert driver.outcome("j2")["outcome"] == "failed"
    assert driver.host.hello()["jobs"] == {"j1": "running"}
    driver.host.exit()


def test_a_repeated_run_starts_no_second_run(driver: Driver) -> None:
    running(driver)
    message = {"type": "run", "job": "j1", "target": "job.py", "checkpoint": "c", "attempt": 1}
    assert driver.host.handle(message) is None
    assert driver.kinds() == ["loading", "running"]
    driver.host.exit()


@pytest.mark.parametrize(
    "message",
    [
        {"type": "stop", "job": "other"},
        {"type": "savepoint", "job": "j1"},
        {"type": "dance", "job": "j1"},
        {"type": "run", "job": "../x", "target": "t", "checkpoint": "c"},
        {"type": "run", "job": "x"},
    ],
)
def test_a_message_that_cannot_be_carried_out_is_rejected(driver: Driver, message: Message) -> None:
    running(driver)
    answer = driver.host.handle(message)
    assert answer is not None
    assert answer["type"] == "rejected"
    assert driver.host.hello()["jobs"] == {"j1": "running"}
    driver.host.exit()


def test_a_smaller_token_is_refused_and_a_larger_one_reaches_the_lease(driver: Driver) -> None:
    running(driver, token=5)
    assert "taken over" in (driver.host.attach(4) or "")
    assert driver.host.attach(5) is None
    assert driver.host.attach(7) is None
    wait_for(lambda: driver.runtime.runs["j1"].fenced == [7])
    assert driver.host.attach(6) is not None
    driver.host.exit()


def test_a_spare_becomes_the_driver_of_its_first_job(tmp_path: Path) -> None:
    driver = Driver(tmp_path, spare=True)
    assert driver.host.hello()["spare"] is True
    assert not driver.host.wait(0)
    driver.host.handle({"type": "run", "job": "j1", "target": "job.py", "checkpoint": "c"})
    driver.event("running")
    assert driver.host.hello()["spare"] is False
    driver.runtime.runs["j1"].finish()
    assert driver.host.wait(10)


def test_a_spare_ends_when_its_manager_was_away_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.0]
    host = DriverHost(tmp_path, FakeRuntime(), spare=True, clock=lambda: times[0])
    times[0] = module.ABANDONED_SECONDS * 2
    host.heartbeat(attached=True)
    assert not host.wait(0)
    times[0] *= 2
    host.heartbeat(attached=False)
    assert host.wait(0)


def test_a_heartbeat_has_the_progress_of_each_job_and_the_memory_of_the_driver(driver: Driver) -> None:
    running(driver)
    driver.runtime.runs["j1"].commit(4, 10)
    driver.event("epoch")
    beat = driver.host.heartbeat(attached=True)
    assert (beat["type"], beat["at"]) == ("heartbeat", 1000.0)
    assert beat["jobs"]["j1"]["state"] == "running"
    assert beat["jobs"]["j1"]["rows_in"] == 10
    assert beat["rss"] > 1_000_000
    driver.host.exit()
