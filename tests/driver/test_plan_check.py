"""The check of a plan before a job is accepted: in a process with limits, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main

GOOD = """
import penstock as ps
print("noise")
def job(n: int = 1) -> ps.Pipeline:
    return ps.Pipeline("p", ps.from_items([{"a": n}], "a bigint").filter("a > 0").to(ps.collect()))
"""
WRONG = """
import penstock as ps
job = ps.Pipeline("p", ps.from_items([{"a": 1}], "a bigint").filter("b > 0").to(ps.collect()))
"""


def checked(tmp_path: Path, source: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    (tmp_path / "job.py").write_text(source)
    content = {"job": "j1", "target": str(tmp_path / "job.py"), "checkpoint": str(tmp_path / "c"), **fields}
    (tmp_path / "assignment.json").write_text(json.dumps(content))
    command = [sys.executable, "-m", "penstock.driver.plan_check", str(tmp_path / "assignment.json")]
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout or b"{}")


def test_the_plan_of_a_good_job_is_printed_and_what_it_prints_is_not_in_the_way(tmp_path: Path) -> None:
    code, result = checked(tmp_path, GOOD, arguments={"n": 3})
    assert (code, result["ok"], result["pipeline"]) == (0, True, "p")
    assert any(node["kind"] == "filter" for node in result["plan"]["nodes"])
    assert "filter" in result["explain"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [(WRONG, "UnknownColumn"), ("import penstock as ps\n1 / 0", "BadEntry"), ("a = 1", "BadEntry")],
)
def test_a_mistake_is_the_error_that_explain_prints(
    tmp_path: Path, source: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = checked(tmp_path, source)
    assert code == 2
    assert result["error"]["type"] == kind
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["penstock", "explain", "job.py"])
    with pytest.raises(SystemExit):
        main()
    assert result["text"] == capsys.readouterr().err.rstrip("\n")


@pytest.mark.parametrize(
    ("source", "code", "wrong"),
    [
        ("import sys; sys.exit(3)", 2, "SystemExit"),
        ("x = bytearray(3 * 1024**3)", 2, "MemoryError"),
        ("open('large', 'wb').write(bytes(32 * 1024**2))", 2, "File too large"),
        ("import nosuchmodule", 2, "nosuchmodule"),
    ],
)
def test_a_file_that_harms_is_refused_with_its_cause(tmp_path: Path, source: str, code: int, wrong: str) -> None:
    found, result = checked(tmp_path, source)
    assert found == code
    assert wrong in result["text"]


def test_a_file_that_ends_the_process_prints_no_result(tmp_path: Path) -> None:
    assert checked(tmp_path, "import os; os._exit(7)") == (7, {})
