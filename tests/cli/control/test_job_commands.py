"""The commands of the job manager against the real REST API, with a job manager in memory behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.control.machine.states import JobState
from tests.control.client.busy_manager import BusyManager

Penstock = Callable[..., Any]


def test_submit_prints_the_job(on_manager: Penstock, manager: BusyManager, file: Path) -> None:
    said = on_manager("submit", f"{file}:prices", "--name", "orders", "--set", "window=30s", "--set", "rows=5")
    assert said.code == 0, said.err
    (job,) = manager.jobs.values()
    assert said.out.splitlines()[0] == f"job orders {job.id}: CREATED, version 1"
    assert (manager.submissions[0].entry, manager.submissions[0].arguments) == (
        "prices",
        {"window": "30s", "rows": "5"},
    )


def test_submit_passes_all_options_on(on_manager: Penstock, manager: BusyManager, file: Path) -> None:
    options = ["--until", "ended", "--parallelism", "3", "--pool", "small", "--restart", "none", "--memory", "2g"]
    more = ["--autoscale", '{"kind": "lag"}', "--cores", "0.5", "--setting", "checkpoint_interval=10s"]
    assert on_manager("submit", file, *options, *more).code == 0
    (asked,) = manager.submissions
    assert (asked.until, asked.parallelism, asked.pool, asked.memory, asked.cores) == ("ended", 3, "small", "2g", 0.5)
    assert asked.settings == {"checkpoint_interval": "10s"}
    assert "none" in str(asked.restart_policy)
    assert "lag" in str(asked.autoscaling)


def test_a_dry_run_of_the_autoscaler_is_part_of_its_policy(
    on_manager: Penstock, manager: BusyManager, file: Path
) -> None:
    assert on_manager("submit", file, "--autoscale", "lag:maximum=8", "--dry-run").code == 0
    policy = manager.submissions[0].autoscaling
    assert isinstance(policy, dict)
    assert (policy["kind"], policy["maximum"], policy["dry_run"]) == ("lag", 8, True)
    alone = on_manager("submit", file, "--dry-run")
    assert (alone.code, "--dry-run is for --autoscale" in alone.err) == (2, True)
    wrong = on_manager("submit", file, "--autoscale", "lga", "--dry-run")
    assert (wrong.code, "did you mean 'lag'?" in wrong.err) == (2, True)


def test_submit_prints_json(on_manager: Penstock, manager: BusyManager, file: Path) -> None:
    said = on_manager("submit", file, "--json")
    shown = json.loads(said.out)
    names = "id name state version restarts pid started_at ended_at error lag rows_per_second checkpoint"
    assert {*names.split()} <= {*shown}
    assert (shown["id"], shown["state"]) == (next(iter(manager.jobs)), "CREATED")


def test_submit_waits_until_the_job_runs(on_manager: Penstock, file: Path) -> None:
    said = on_manager("submit", file, "--wait", "--json")
    assert (said.code, json.loads(said.out)["state"]) == (0, "RUNNING")
    assert said.err.splitlines() == ["job vwap: CREATED", "job vwap: STARTING", "job vwap: RUNNING"]


def test_submit_waits_until_a_job_that_ends_has_ended(on_manager: Penstock, file: Path) -> None:
    said = on_manager("submit", file, "--until", "ended", "--wait", "--json")
    assert (said.code, json.loads(said.out)["state"]) == (0, "FINISHED")


def test_a_job_that_fails_while_submit_waits_exits_with_1(
    on_manager: Penstock, manager: BusyManager, file: Path
) -> None:
    manager.failing = "disk full"
    said = on_manager("submit", file, "--until", "drained", "--wait")
    assert said.code == 1
    assert "failed: SinkFailed: disk full\n  penstock job exceptions vwap" in said.err


def test_ctrl_c_stops_waiting_and_not_the_job(
    on_manager: Penstock, manager: BusyManager, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.control.client.Client.watch", interrupted)
    said = on_manager("submit", file, "--wait")
    assert (said.code, "no longer waiting; the job manager continues" in said.err) == (130, True)
    assert manager.asked == []


def test_a_mistake_in_the_pipeline_is_what_explain_prints(on_manager: Penstock, file: Path) -> None:
    file.write_text("sum(pirce)")
    said = on_manager("submit", file)
    assert (said.code, said.err) == (
        2,
        "UnknownColumn: aggregate 'vwap': unknown column 'pirce'\n  columns here: price      did you mean 'price'?\n",
    )


@pytest.mark.parametrize("wrong", ["window", "=30s"])
def test_a_set_without_key_or_value_is_refused(on_manager: Penstock, file: Path, wrong: str) -> None:
    said = on_manager("submit", file, "--set", wrong)
    assert (said.code, said.err.startswith(f"BadEntry: --set {wrong}: a key and a value are needed")) == (2, True)


def test_a_file_that_is_not_there_is_refused_before_anything_is_sent(penstock: Penstock) -> None:
    said = penstock("submit", "nowhere.py", "--server", "127.0.0.1:1")
    assert (said.code, said.err) == (2, "BadEntry: file not found: nowhere.py\n  Python and SQL files in .: (none)\n")


def test_without_a_job_manager_every_command_says_how_to_start_one(penstock: Penstock, file: Path) -> None:
    for command in (["jobs"], ["job", "show", "x"], ["submit", file], ["stop", "x"], ["logs", "x"], ["top"]):
        said = penstock(*command, "--server", "127.0.0.1:1")
        assert said.code == 1
        assert said.err.startswith("NoJobManager: no job manager at http://127.0.0.1:1\n  start one with `penstock up`")


def test_jobs_are_listed_as_a_table(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap", rows_per_second=8000.0, lag=1200, epoch=7)
    manager.add("old", state=JobState.STOPPED)
    said = on_manager("jobs")
    head, *rows = (line.split() for line in said.out.splitlines())
    assert head == ["job", "id", "state", "version", "epoch", "rows/s", "lag", "restarts", "age"]
    assert [row[0] for row in rows] == ["old", "vwap"]
    assert rows[1][2:8] == ["RUNNING", "1", "7", "8,000", "1,200", "0"]


def test_jobs_are_filtered_by_state_in_any_case(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    manager.add("old", state=JobState.STOPPED)
    said = on_manager("jobs", "--state", "stopped", "--json")
    assert [job["name"] for job in json.loads(said.out)] == ["old"]
    wrong = on_manager("jobs", "--state", "asleep")
    assert (wrong.code, "RequestRefused" in wrong.err, "RUNNING" in wrong.err) == (2, True, True)


def test_a_job_is_shown(on_manager: Penstock, manager: BusyManager) -> None:
    job = manager.add("vwap", lag=1200, checkpoint="/data/checkpoints/x", pid=4711, arguments={"window": "30s"})
    lines = on_manager("job", "show", "vwap").out.splitlines()
    assert lines[0] == f"job vwap {job.id}: RUNNING, version 1"
    assert {"  lag          1,200 rows", "  driver       process 4711", "  checkpoint   /data/checkpoints/x"} <= {
        *lines
    }
    assert json.loads(on_manager("job", "show", job.id[:4], "--json").out)["id"] == job.id


def test_an_unknown_job_exits_with_2(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    said = on_manager("stop", "vwpa")
    assert (said.code, said.err) == (
        2,
        "UnknownJob: there is no job 'vwpa'\n  jobs: vwap      did you mean 'vwap'?\n",
    )


@pytest.mark.parametrize(
    ("command", "column", "value"),
    [
        ("history", "cause", "submitted"),
        ("epochs", "rows in", "10"),
        ("exceptions", "message", "no answer of kafka"),
        ("savepoints", "path", "savepoints/before"),
        ("versions", "entry", "vwap"),
    ],
)
def test_what_is_known_about_a_job_is_a_table_or_json(
    on_manager: Penstock, manager: BusyManager, command: str, column: str, value: str
) -> None:
    manager.add("vwap")
    said = on_manager("job", command, "vwap")
    head, *rows = said.out.splitlines()
    assert (column in head, value in rows[0]) == (True, True)
    assert len(json.loads(on_manager("job", command, "vwap", "--json").out)) == len(rows)


def test_the_history_has_its_states_under_the_names_of_the_api(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    (one,) = json.loads(on_manager("job", "history", "vwap", "--json").out)
    assert (one["from"], one["to"]) == ("CREATED", "STARTING")


def test_the_plan_is_json(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    assert json.loads(on_manager("job", "plan", "vwap").out).keys() == {"sources"}


@pytest.mark.parametrize(
    ("command", "kind", "arguments", "state"),
    [
        (["stop", "vwap"], "stop", {}, "STOPPED"),
        (["stop", "vwap", "--savepoint"], "stop", {"savepoint": True}, "STOPPED"),
        (["stop", "vwap", "--savepoint", "before"], "stop", {"savepoint": "before"}, "STOPPED"),
        (["cancel", "vwap"], "cancel", {}, "CANCELED"),
        (["restart", "vwap"], "restart", {}, "RUNNING"),
        (["rescale", "vwap", "4"], "rescale", {"parallelism": 4}, "RUNNING"),
        (["job", "savepoint", "vwap", "--name", "one"], "savepoint", {"name": "one"}, "RUNNING"),
    ],
)
def test_a_command_is_carried_out_and_the_job_printed(
    on_manager: Penstock, manager: BusyManager, command: list[str], kind: str, arguments: object, state: str
) -> None:
    job = manager.add("vwap")
    said = on_manager(*command)
    assert said.code == 0, said.err
    (stored,) = manager.asked
    assert (stored.kind, stored.arguments, stored.state) == (kind, arguments, "done")
    assert said.out.splitlines() == [f"job vwap {job.id}: {state}, version 1", f"  {kind} is done"]
    assert said.err.splitlines() == [f"{kind} vwap: open", f"{kind} vwap: done"]
    assert json.loads(on_manager(*command, "--json").out)["id"] == job.id


def test_a_command_is_not_waited_for_if_asked(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    assert on_manager("stop", "vwap", "--no-wait").code == 0
    assert [command.state for command in manager.asked] == ["open"]


def test_a_command_that_fails_exits_with_1(on_manager: Penstock, manager: BusyManager) -> None:
    job = manager.add("vwap")
    manager.failing = "there is not enough memory"
    said = on_manager("rescale", "vwap", "64")
    assert (said.code, said.err.splitlines()[-2:]) == (
        1,
        ["JobFailed: rescale: there is not enough memory", f"  penstock job history {job.id} has what happened"],
    )


def test_the_name_of_a_savepoint_needs_the_option(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    said = on_manager("stop", "vwap", "before")
    assert (said.code, "penstock stop vwap --savepoint before" in said.err) == (2, True)
    assert manager.asked == []


def test_update_sends_the_new_source(on_manager: Penstock, manager: BusyManager, file: Path) -> None:
    job = manager.add("vwap")
    said = on_manager("update", "vwap", file, "--set", "window=1m", "--allow-drop")
    assert said.code == 0, said.err
    assert manager.sources[job.id].filename == "vwap.py"
    (asked,) = manager.updates
    assert (asked.arguments, asked.settings, asked.allow_drop) == ({"window": "1m"}, None, True)


def test_a_deleted_job_is_gone(on_manager: Penstock, manager: BusyManager) -> None:
    job = manager.add("vwap", state=JobState.STOPPED)
    assert on_manager("job", "delete", "vwap").out == f"delete {job.id}: done\n"
    assert manager.jobs == {}


def test_a_savepoint_is_created_through_the_job_manager(
    on_manager: Penstock, manager: BusyManager, served: tuple[BusyManager, str]
) -> None:
    manager.add("vwap")
    said = on_manager("savepoint", "create", "vwap", "--name", "one", "--server", served[1])
    assert said.code == 0, said.err
    assert [command.arguments for command in manager.asked] == [{"name": "one"}]
    refused = on_manager("savepoint", "create", "vwap", "--to", "x", "--server", served[1])
    assert (refused.code, "--to is not for --server" in refused.err) == (2, True)


def test_logs_are_printed_and_followed(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("vwap")
    assert on_manager("logs", "vwap").out == "first\nsecond\nthird\n"
    assert on_manager("logs", "vwap", "-f", "--tail", 1).out == "third\npassword=***\n"
    assert on_manager("logs", "vwap", "--tail", 1, "--json").out == '{"line": "third"}\n'


def test_top_prints_the_table_once_without_a_terminal(on_manager: Penstock, manager: BusyManager) -> None:
    manager.add("zeta")
    manager.add("alpha", state=JobState.STOPPED)
    assert [line.split()[0] for line in on_manager("top", "--once").out.splitlines()] == ["job", "zeta", "alpha"]
    assert [job["name"] for job in json.loads(on_manager("top", "--json").out)] == ["zeta", "alpha"]


def test_top_draws_the_jobs_and_what_is_wrong(manager: BusyManager) -> None:
    from rich.console import Console

    from penstock.cli.control.top import view

    jobs = [manager.add("vwap", lag=1200, rows_per_second=8000.0), manager.add("old", state=JobState.FAILED)]
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view(jobs, "http://127.0.0.1:8081", "the job manager is gone"))
    text = console.export_text()
    console.file.close()
    assert "1 FAILED, 1 RUNNING" in text
    assert "the job manager is gone" in text
    assert "8,000" in text


def test_tokens_are_created_listed_and_revoked(on_manager: Penstock, manager: BusyManager) -> None:
    said = on_manager("token", "create", "ci", "--role", "operator")
    assert (said.out[:4], "token ci (operator)" in said.err) == ("pst_", True)
    assert on_manager("token", "list").out.splitlines()[1].split()[0] == "ci"
    assert json.loads(on_manager("token", "list", "--json").out)[0]["role"] == "operator"
    assert on_manager("token", "revoke", "ci").out == "revoked ci\n"
    assert manager.kept_tokens == {}


def test_secrets_are_set_listed_and_deleted_and_never_shown(
    on_manager: Penstock, manager: BusyManager, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("topsecret\n")
    said = on_manager("secret", "set", "CRM", "--file", tmp_path / "password")
    assert said.out == "set CRM; jobs refer to it by ${secret:CRM}\n"
    assert manager.kept_secrets == {"CRM": "topsecret"}
    listed = on_manager("secret", "list", "--json")
    assert [one["name"] for one in json.loads(listed.out)] == ["CRM"]
    assert "topsecret" not in said.out + said.err + listed.out + on_manager("secret", "list").out
    assert on_manager("secret", "delete", "CRM").out == "deleted CRM\n"
    assert on_manager("secret", "delete", "CRM").code == 2
    assert on_manager("secret", "set", "no name", "--file", tmp_path / "password").code == 2
    assert on_manager("secret", "set", "CRM", "--file", tmp_path / "missing").code == 2


def test_the_first_token_is_written_to_the_data_folder(penstock: Penstock, tmp_path: Path) -> None:
    from penstock.control.security.tokens import Access
    from penstock.control.store.store import Store

    said = penstock("token", "create", "root", "--role", "admin", "--data", tmp_path)
    assert said.code == 0, said.err
    with Store(f"sqlite:///{tmp_path}/penstock.db") as store:
        holder = Access(store.tokens).authenticate(said.out.strip())
    assert holder is not None
    assert (holder.name, holder.role) == ("root", "admin")
    missing = penstock("token", "create", "root", "--data", tmp_path / "none")
    assert (missing.code, "is not a folder" in missing.err) == (2, True)


def test_names_of_jobs_are_completed(
    on_manager: Penstock, manager: BusyManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.add("vwap")
    manager.add("orders")
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "penstock stop v")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert on_manager().out.split() == ["vwap"]
    monkeypatch.setenv("PENSTOCK_SERVER", "127.0.0.1:1")
    assert on_manager().out.split() == []
