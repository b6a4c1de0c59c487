from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline
from penstock.cli import bench
from penstock.errors import SinkFailed
from penstock.report import Counts, Progress, Report

Penstock = Callable[..., Any]

JOB = """
import penstock as ps

def job(rows: int = 1) -> ps.Pipeline:
    return ps.Pipeline(f"job-{rows}", ps.from_items([{"a": 1}], "a bigint").to(ps.console()))
"""


class Done:
    """A run that has just finished its first epoch."""

    notice: str | None = None

    def progress(self) -> Progress:
        return Progress(epoch=0, epochs=1, rows_in=3, rows_out=1)

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def stop(self) -> None:
        raise AssertionError

    def report(self) -> Report:
        return Report(epochs=1, rows={"prices": 1}, counts={"trades": Counts(rows_in=3, used=3)})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def test_version_is_that_of_the_package(penstock: Penstock) -> None:
    said = penstock("--version")
    assert (said.code, said.out) == (0, f"penstock {version('penstock')}\n")


@pytest.mark.parametrize("wrong", [["rnu"], ["run"], ["run", "x.py", "--until", "never"], ["explain", "--depth", "2"]])
def test_wrong_usage_exits_with_2(penstock: Penstock, wrong: list[str]) -> None:
    said = penstock(*wrong)
    assert said.code == 2
    assert "Usage: penstock" in said.err


def test_a_wrong_input_is_one_readable_error_without_traceback(penstock: Penstock) -> None:
    said = penstock("run", "nowhere.py")
    assert said.code == 2
    assert said.err.startswith("BadEntry: file not found: nowhere.py\n  Python and SQL files in .: (none)")
    assert "Traceback" not in said.err


def test_an_unknown_profile_exits_with_2(penstock: Penstock, job: Path) -> None:
    Path("penstock.toml").write_text("[profiles.prod]\n")
    said = penstock("run", job, "--profile", "prd")
    assert said.code == 2
    assert "profiles there: prod      did you mean 'prod'?" in said.err


def test_run_starts_the_pipeline_and_sums_up(penstock: Penstock, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(Pipeline, "start", lambda self, **options: asked.update(options, name=self.name) or Done())
    Path("penstock.toml").write_text("[profiles.prod]\nparallelism = 3\n")
    said = penstock("run", job, "--set", "rows=5", "--profile", "prod", "--checkpoint", "c", "--until", "drained")
    assert said.code == 0, said.err
    assert (asked["name"], asked["until"], asked["checkpoint"]) == ("job-5", "drained", "c")
    assert asked["settings"].parallelism == 3
    assert said.out.startswith("epoch 0  rows_in 3  ")
    assert "prices: 1 rows written" in said.out


def test_a_job_that_fails_exits_with_1(penstock: Penstock, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed(Done):
        def wait(self, timeout: float | None = None) -> bool:
            message = "cannot write"
            raise SinkFailed(message, node="prices")

    monkeypatch.setattr(Pipeline, "start", lambda self, **options: Failed())
    said = penstock("run", job)
    assert (said.code, said.err.splitlines()[1:]) == (1, ["SinkFailed: prices: cannot write"])


def test_a_file_that_is_not_the_users_is_named(penstock: Penstock, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Pipeline, **options: object) -> None:
        raise PermissionError(13, "Permission denied", "there/penstock.json")

    monkeypatch.setattr(Pipeline, "start", closed)
    said = penstock("run", job)
    assert said.code == 2
    assert "SettingsError: there/penstock.json: permission denied for this user\n  run as" in said.err
    assert "bug" not in said.err


def test_a_bug_of_ours_says_so_and_shows_its_place_only_on_request(
    penstock: Penstock, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Pipeline, **options: object) -> None:
        message = "oops"
        raise KeyError(message)

    monkeypatch.setattr(Pipeline, "start", broken)
    said = penstock("run", job)
    assert said.code == 1
    assert "\nUnexpected KeyError: 'oops'\n" in said.err
    assert "Traceback" not in said.err
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert "Traceback" in penstock("run", job).err


def test_an_interrupt_before_the_run_exits_with_130(
    penstock: Penstock, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Pipeline, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pipeline, "start", interrupted)
    said = penstock("run", job)
    assert (said.code, said.err.splitlines()[1:]) == (130, [])


@pytest.mark.parametrize(
    ("form", "method"),
    [("text", "explain"), ("dot", "to_dot"), ("mermaid", "to_mermaid")],
)
def test_explain_writes_the_plan_in_each_format(penstock: Penstock, job: Path, form: str, method: str) -> None:
    from penstock.entry_points import load_entry

    said = penstock("explain", job, "--format", form, "--set", "rows=2")
    assert said.code == 0, said.err
    assert said.out.strip() == str(getattr(load_entry(str(job), ["rows=2"]), method)()).strip()


def test_explain_writes_the_physical_plan_as_json(penstock: Penstock, job: Path) -> None:
    from penstock.entry_points import load_entry
    from penstock.plan.physical.plan import PhysicalPlan

    said = penstock("explain", job, "--format", "json", "--set", "rows=2")
    assert said.code == 0, said.err
    assert PhysicalPlan.from_json(said.out) == load_entry(str(job), ["rows=2"]).physical_plan()


def test_demo_passes_its_options_and_its_exit_code(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("penstock.demo.run_demo", lambda **options: asked.update(options) or 1)
    assert penstock("demo", "--events", "10", "--symbols", "2", "--data", "here").code == 1
    assert callable(asked.pop("watch"))
    assert asked == {"events": 10, "symbols": 2, "data": Path("here")}


def test_an_unknown_peer_is_refused_with_those_that_are_known(penstock: Penstock) -> None:
    said = penstock("bench", "vwap", "--peers", "sprak")
    assert said.code == 2
    assert "did you mean 'spark'?" in said.err


def test_benches_outside_a_checkout_say_where_they_are(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "lib/penstock/cli/bench.py"))
    said = penstock("bench", "latency")
    assert said.code == 2
    assert "from a source checkout" in said.err


def test_bench_passes_its_options_on(penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    class Bench:
        @staticmethod
        def run(**options: object) -> None:
            asked.update(options)

    monkeypatch.setattr("penstock.cli.bench._benchmark", lambda name: Bench)
    said = penstock("bench", "vwap", "--events", "10", "--format", "csv", "--peers", "spark, duckdb", "--json", "r")
    assert said.code == 0, said.err
    expected = {"events": 10, "symbols": 10_000, "format": "csv", "epochs": 12, "peers": ["spark", "duckdb"]}
    assert asked == {**expected, "json": Path("r"), "source": "files"}


def test_a_database_that_does_not_answer_is_said_before_spark_starts(penstock: Penstock, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    sink = 'ps.table("trades", connection="postgresql://ada:secret@127.0.0.1:1/shop")'
    job.write_text(JOB.replace("ps.console()", sink))
    said = penstock("run", job)
    assert said.code == 2
    assert said.err.splitlines()[1:] == [
        "SettingsError: table trades: postgresql://ada:***@127.0.0.1:1/shop does not answer: Connection refused",
        "  check that PostgreSQL is running there, and host and port of the connection",
    ]


def test_an_unknown_job_is_told_which_there_are(penstock: Penstock) -> None:
    Path(".penstock/checkpoints/prices").mkdir(parents=True)
    said = penstock("savepoint", "create", "pricse")
    assert said.code == 2
    assert "pipelines with a checkpoint there: prices      did you mean 'prices'?" in said.err
