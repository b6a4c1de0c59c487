"""Promise: the tutorial works. Its files are written, its commands run in order, and their output is compared."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from penstock.cli import main
from penstock.settings import Settings
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorial"
FIRST = ("windowed-job", "late-rows")
# A job of its own process is killed there.
ORDER = (*FIRST, "crash", "savepoint")
BLOCK = re.compile(r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"[|&;<>$*]")


@dataclass(frozen=True)
class Step:
    """One file to write, or one command and what it prints."""

    where: str
    title: str
    text: str
    expected: str = ""


def steps(page: str) -> Iterator[Step]:
    for block in BLOCK.finditer((PAGES / f"{page}.md").read_text("utf-8")):
        if block["title"]:
            yield Step(page, block["title"], block["text"])
        elif block["kind"] == "console":
            for command in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                first, _, expected = command.partition("\n")
                yield Step(page, "", first, expected)


@pytest.fixture
def folder(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which the tutorial's job runs on the session that all tests share."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PENSTOCK_PARALLELISM", str(settings.parallelism))
    monkeypatch.setenv("PENSTOCK_SPARK", ",".join(f"{name}={value}" for name, value in settings.spark.items()))
    yield tmp_path
    job = tmp_path / "job.pid"
    if job.exists():  # a page that failed before its kill leaves the job running; else its id may be another process's
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(job.read_text()))
            if any("vwap.py" in part for part in process.cmdline()):
                process.kill()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("pages", [FIRST, pytest.param(ORDER, marks=pytest.mark.slow)], ids=["short", "whole"])
def test_every_command_of_the_tutorial_prints_what_the_page_shows(pages: tuple[str, ...]) -> None:
    for page in pages:
        for step in steps(page):
            if step.title:
                Path(step.title).write_text(step.text)
            else:
                check(step, run(step.text))
                if step.text.startswith("kill "):  # returns before the process has ended; a reader types more slowly
                    wait_for(has_ended, "the killed job did not end")


def has_ended() -> bool:
    """Say whether the job and all its threads are gone: its lock on the checkpoint goes with the last of them."""
    try:
        job = psutil.Process(int(Path("job.pid").read_text()))
        return job.status() == psutil.STATUS_ZOMBIE and job.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


def run(command: str) -> str:
    """Run a command; a plain `penstock ...` in this process, which saves the start of a JVM each time."""
    if command.startswith("penstock ") and not SHELL.search(command):
        return in_process(shlex.split(command))
    bash = ["bash", "-c", command]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(bash, text=True, timeout=300, check=False, **streams).stdout  # type: ignore[call-overload, no-any-return]


def in_process(arguments: list[str]) -> str:
    out, argv = io.StringIO(), sys.argv
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        sys.argv = arguments
        try:
            main()
        finally:
            sys.argv = argv
    return out.getvalue()


def check(step: Step, printed: str) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = doctest.OutputChecker().check_output(step.expected, printed, options)
    assert same, f"{step.where}.md: $ {step.text}\n--- the page shows:\n{step.expected}--- it prints:\n{printed}"


@pytest.mark.slow
def test_the_installation_of_the_tutorial(tmp_path: Path) -> None:
    """The long form: a new virtual environment, from the package index."""
    copy = tmp_path / "penstock"
    left_out = shutil.ignore_patterns(".git", ".venv*", "site", "__pycache__", ".*_cache", "out", ".penstock")
    shutil.copytree(ROOT, copy, ignore=left_out)
    commands = list(steps("index"))
    script = "set -e\n" + "\n".join(step.text for step in commands)
    done = subprocess.run(["bash", "-c", script], cwd=copy, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(commands[-1].expected)
