from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.settings import Settings

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def command_line(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The command line in this process and in the test's folder, on the session that all tests share: a JVM less each.

    For a test of signals or of a crash run `python -m penstock.cli`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_PARALLELISM", str(settings.parallelism))
    monkeypatch.setenv("PENSTOCK_SPARK", ",".join(f"{name}={value}" for name, value in settings.spark.items()))

    def call(*arguments: str, stdin: str = "", **env: str) -> Done:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setattr("sys.argv", ["penstock", *arguments])
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            code = _exit_code()
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return call


@pytest.fixture
def penstock(command_line: Callable[..., Done]) -> Callable[..., str]:
    """The same, for commands that have to succeed; returns what they print."""

    def call(*arguments: str, **more: str) -> str:
        done = command_line(*arguments, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def _exit_code() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
