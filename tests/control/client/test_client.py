"""The client against the real REST API, with a job manager in memory behind it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.control.machine.states import JobState
from penstock.errors import JobFailed, RequestRefused, UnknownColumn, UnknownJob
from tests.control.client.busy_manager import BusyManager

CODE = "import penstock as ps\n"


@pytest.fixture
def client(served: tuple[BusyManager, str]) -> Iterator[ps.Client]:
    with ps.Client(served[1], sleep=lambda _: None) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vwap.py"
    path.write_text(CODE)
    return path


def test_a_submitted_file_arrives_as_it_is_with_all_options(
    client: ps.Client, manager: BusyManager, file: Path
) -> None:
    job = client.submit(
        f"{file}:prices",
        "orders",
        until="ended",
        parallelism=3,
        pool="small",
        restart_policy="fixed_delay:delay=5s,attempts=3",
        autoscaling={"kind": "lag"},
        memory="2g",
        cores=0.5,
        settings={"checkpoint_interval": "10s"},
        window="30s",
        arguments={"until": "noon"},
    )
    assert (job.name, job.state, job.until) == ("orders", "CREATED", "ended")
    source = manager.sources[job.id]
    assert (source.filename, source.content) == ("vwap.py", CODE.encode())
    (asked,) = manager.submissions
    assert asked.model_dump() == {
        "entry": "prices",
        "name": "orders",
        "settings": {"checkpoint_interval": "10s"},
        "arguments": {"until": "noon", "window": "30s"},
        "until": "ended",
        "parallelism": 3,
        "restart_policy": asked.restart_policy,
        "autoscaling": asked.autoscaling,
        "pool": "small",
        "memory": "2g",
        "cores": 0.5,
    }
    assert "fixed_delay" in str(asked.restart_policy)
    assert "lag" in str(asked.autoscaling)


def test_a_submission_needs_a_file_only(client: ps.Client, manager: BusyManager, file: Path) -> None:
    assert client.submit(file).name == "vwap"
    assert manager.submissions[0].model_dump(exclude_defaults=True) == {}


def test_a_submitted_folder_arrives_as_a_zip(client: ps.Client, manager: BusyManager, file: Path) -> None:
    (file.parent / "rates.py").write_text("x = 1\n")
    job = client.submit(f"{file.parent}:vwap.py:prices", "orders")
    source = manager.sources[job.id]
    assert source.filename.endswith(".zip")
    assert zipfile.ZipFile(io.BytesIO(source.content)).namelist() == ["rates.py", "vwap.py"]
    assert manager.submissions[0].entry == "vwap.py:prices"


def test_a_mistake_in_the_pipeline_is_raised_as_explain_prints_it(client: ps.Client, file: Path) -> None:
    file.write_text("sum(pirce)")
    with pytest.raises(UnknownColumn) as raised:
        client.submit(file)
    assert str(raised.value) == (
        "aggregate 'vwap': unknown column 'pirce'\n  columns here: price      did you mean 'price'?"
    )


def test_jobs_are_listed_over_all_pages_and_filtered(
    client: ps.Client, manager: BusyManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.control.client.client.PAGE", 2)
    for number in range(5):
        manager.add(f"job-{number}", state=JobState.STOPPED if number == 3 else JobState.RUNNING)
    assert [job.name for job in client.jobs()] == ["job-4", "job-3", "job-2", "job-1", "job-0"]
    assert [job.name for job in client.jobs(state="STOPPED")] == ["job-3"]
    assert [job.name for job in client.jobs(name="-4")] == ["job-4"]


def test_a_job_is_named_by_name_id_or_the_start_of_its_id(client: ps.Client, manager: BusyManager) -> None:
    for name in ("vwap", "other"):
        job = manager.jobs.pop(manager.add(name).id)
        manager.jobs[f"{name}-1"] = job.model_copy(update={"id": f"{name}-1"})
    assert {client.job(name).id for name in ("vwap", "vwap-1", "vw")} == {"vwap-1"}


@pytest.mark.parametrize("name", ["vwpa", "", "a/b", "ä b", "?x=1", "..", "%2e%2e"])
def test_an_unknown_job_is_refused_with_those_that_are_there(
    client: ps.Client, manager: BusyManager, name: str
) -> None:
    manager.add("vwap")
    with pytest.raises((UnknownJob, RequestRefused)) as refused:
        client.job(name)
    if name == "vwpa":
        assert refused.value.hint == "jobs: vwap      did you mean 'vwap'?"


def test_commands_are_stored_and_then_carried_out(client: ps.Client, manager: BusyManager) -> None:
    job = manager.add("vwap")
    asked = client.stop("vwap", savepoint="before")
    assert (asked.state, asked.arguments) == ("open", {"savepoint": "before"})
    assert client.wait(asked).state == "done"
    assert client.job(job.id).state == "STOPPED"


@pytest.mark.parametrize(
    ("kind", "arguments", "state"),
    [
        ("stop", {}, "STOPPED"),
        ("cancel", {}, "CANCELED"),
        ("restart", {}, "RUNNING"),
        ("rescale", {"parallelism": 4}, "RUNNING"),
        ("savepoint", {}, "RUNNING"),
    ],
)
def test_each_command_reaches_the_job(
    client: ps.Client, manager: BusyManager, kind: str, arguments: dict[str, int], state: str
) -> None:
    manager.add("vwap")
    done = client.wait(getattr(client, kind)("vwap", *arguments.values()))
    assert (done.kind, done.arguments, client.job("vwap").state) == (kind, arguments, state)


def test_a_command_that_fails_is_raised(client: ps.Client, manager: BusyManager) -> None:
    manager.add("vwap")
    manager.failing = "the new version does not start"
    with pytest.raises(JobFailed, match="restart: the new version does not start"):
        client.wait(client.restart("vwap"))


def test_an_update_sends_the_new_source_and_what_changes(client: ps.Client, manager: BusyManager, file: Path) -> None:
    job = manager.add("vwap")
    client.wait(client.update("vwap", f"{file}:prices", allow_drop=True, window="1m"))
    client.wait(client.update("vwap", file))
    assert manager.sources[job.id].filename == "vwap.py"
    changed, same = manager.updates
    assert (changed.entry, changed.arguments, changed.settings, changed.allow_drop) == (
        "prices",
        {"window": "1m"},
        None,
        True,
    )
    assert (same.entry, same.arguments, same.settings, same.allow_drop) == (None, None, None, False)


def test_a_deleted_job_is_gone_and_a_running_one_is_not_deleted(client: ps.Client, manager: BusyManager) -> None:
    job = manager.add("vwap")
    with pytest.raises(RequestRefused, match="is RUNNING"):
        client.delete("vwap")
    manager.change(job.id, state=JobState.STOPPED)
    client.wait(client.delete("vwap"))
    with pytest.raises(UnknownJob):
        client.job(job.id)


def test_what_is_known_about_a_job(client: ps.Client, manager: BusyManager) -> None:
    manager.add("vwap")
    assert list(client.plan("vwap").plan) == ["sources"]
    assert [epoch.number for epoch in client.epochs("vwap", limit=2)] == [9, 8]
    assert [(one.source, one.target) for one in client.history("vwap")] == [("CREATED", "STARTING")]
    assert [one.type for one in client.exceptions("vwap")] == ["SinkFailed"]
    assert [one.name for one in client.savepoints("vwap")] == ["before"]
    assert [one.number for one in client.versions("vwap")] == [1]


def test_logs_are_read_from_the_end_and_followed(client: ps.Client, manager: BusyManager) -> None:
    manager.add("vwap")
    assert list(client.logs("vwap")) == ["first", "second", "third"]
    assert list(client.logs("vwap", tail=1)) == ["third"]
    assert list(client.logs("vwap", tail=1, follow=True)) == ["third", "password=***"]
    with pytest.raises(UnknownJob):
        list(client.logs("other"))


def test_events_begin_with_the_subscription(client: ps.Client, manager: BusyManager) -> None:
    job = manager.add("vwap")
    events = client.events("vwap")
    assert next(events).kind == "subscribed"
    manager.bus.publish_threadsafe("state", job.id, state="STOPPING")
    state = next(events)
    assert (state.kind, state.job, state.model_dump()["state"]) == ("state", job.id, "STOPPING")
    events.close()


def test_a_job_is_watched_until_it_ends(client: ps.Client, file: Path) -> None:
    job = client.submit(file, until="ended")
    assert [one.state for one in client.watch(job.id)] == ["CREATED", "STARTING", "RUNNING", "FINISHED"]


def test_tokens_are_created_listed_and_revoked(client: ps.Client) -> None:
    made = client.create_token("ci", "operator")
    assert (made.token[:4], made.role) == ("pst_", "operator")
    assert [token.name for token in client.tokens()] == ["ci"]
    client.revoke_token(made.id)
    assert client.tokens() == []


def test_nodes_and_rows_of_a_job(client: ps.Client, manager: BusyManager) -> None:
    manager.add("vwap")
    trades, large = client.nodes("vwap")
    assert (trades.counts, large.counts and large.counts.rows_in) == (None, 5)
    assert client.sample("vwap", "sink prices").rows == [{"n": 1}]
    assert [row.reason for row in client.diverted("vwap")] == ["not JSON"]
    assert client.replay("vwap", limit=2).replayed == 2
