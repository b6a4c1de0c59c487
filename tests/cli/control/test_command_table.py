"""Promise: the commands of the job manager and their options, by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from penstock.cli import app

REMOTE = {"--server", "--token", "--profile"}
COMMANDS: dict[str, set[str]] = {
    "up": {"--data", "--port", "--host"},
    "server": {"--store", "--log", "--spark-master", "--checkpoints", "--port", "--host", "--data"},
    "submit": {
        "--name",
        "--set",
        "--until",
        "--parallelism",
        "--pool",
        "--restart",
        "--autoscale",
        "--dry-run",
        "--wait",
        "--json",
        *REMOTE,
    },
    "jobs": {"--state", "--json", *REMOTE},
    "job show": {"--json", *REMOTE},
    "job history": {"--json", *REMOTE},
    "job epochs": {"--json", *REMOTE},
    "job plan": {"--json", *REMOTE},
    "job exceptions": {"--json", *REMOTE},
    "job savepoints": {"--json", *REMOTE},
    "job versions": {"--json", *REMOTE},
    "job savepoint": {"--name", "--json", *REMOTE},
    "job delete": {"--json", *REMOTE},
    "logs": {"-f", "--follow", "--tail", "--json", *REMOTE},
    "stop": {"--savepoint", "--no-wait", "--json", *REMOTE},
    "cancel": {"--no-wait", "--json", *REMOTE},
    "restart": {"--no-wait", "--json", *REMOTE},
    "rescale": {"--no-wait", "--json", *REMOTE},
    "update": {"--set", "--allow-drop", "--no-wait", "--json", *REMOTE},
    "savepoint create": {"--server", "--name"},
    "top": {"--once", "--json", *REMOTE},
    "token create": {"--role", "--json", *REMOTE},
    "token list": {"--json", *REMOTE},
    "token revoke": {"--json", *REMOTE},
    "secret set": {"--file", "--json", *REMOTE},
    "secret list": {"--json", *REMOTE},
    "secret delete": {"--json", *REMOTE},
}


def find(name: str) -> Any:
    command: Any = get_command(app)
    for part in name.split():
        command = command.get_command(None, part)
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_options_and_an_example(name: str) -> None:
    command = find(name)
    options = {text for each in command.params for text in (*each.opts, *each.secondary_opts)}
    assert COMMANDS[name] - options == set()
    assert f"Example: penstock {name.split()[0]}" in command.help


@pytest.mark.parametrize(
    "wrong",
    [
        ["submit"],
        ["submit", "x.py", "--until", "never"],
        ["submit", "x.py", "--parallelism", "0"],
        ["rescale", "vwap"],
        ["rescale", "vwap", "many"],
        ["job", "paint", "vwap"],
        ["logs", "vwap", "--tail", "-1"],
        ["token", "create", "ci", "--role", "king"],
        ["up", "--port", "70000"],
    ],
)
def test_wrong_usage_exits_with_2(penstock: Callable[..., Any], wrong: list[str]) -> None:
    said = penstock(*wrong)
    assert (said.code, "Usage: penstock" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("penstock sub", ["submit"]),
        ("penstock stop --sav", ["--savepoint"]),
        ("penstock --install", ["--install-completion"]),
        ("penstock token cr", ["create"]),
    ],
)
def test_the_shell_completes_commands_and_options(
    penstock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
) -> None:
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert penstock().out.split() == expected


def test_completing_a_command_imports_none() -> None:
    code = (
        "import sys; from penstock.cli import LazyCommands; "
        "print(len(LazyCommands().shell_complete(None, '')) > 20, [m for m in sys.modules if 'penstock.cli.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_completion_can_be_installed(
    penstock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert penstock("--install-completion", "bash").code == 0
    assert "_PENSTOCK_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "penstock.sh").read_text()


def test_commands_of_the_job_manager_do_not_load_spark_or_a_parser_of_sql() -> None:
    modules = ["submit", "update", "jobs", "job", "logs", "lifecycle", "top", "token", "manager"]
    heavy = ("pyspark", "pandas", "pyarrow", "duckdb", "sqlglot", "fastapi", "sqlalchemy")
    code = (
        f"import sys, importlib; [importlib.import_module('penstock.cli.control.' + m) for m in {modules}]; "
        f"import penstock.control.client; print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
