"""`penstock up` as a process: addresses, one to a folder, a crash stops nothing, and a shutdown is resumed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.control.server import Listen, base_settings
from penstock.control.supervisor.drivers.processes import kill_all, marks
from penstock.control.supervisor.embedded_log import EmbeddedLog
from penstock.errors import PortTaken
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
PIPELINE = b"""
import penstock as ps
pipeline = ps.Pipeline("prices", ps.datagen("trades", rate=10).to(ps.collect()))
"""


class Up:
    """`penstock up` with scripted drivers."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "up.log"
        program = [sys.executable, "-m", "tests.crash.control_scripted", str(folder), "up"]
        self._command = [*program, "--data", str(folder / "data"), "--port", "0", "--spares", "0"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, str]:
        """Start it; return the addresses of the job manager and the log."""
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
        wait_for(lambda: "log" in self.addresses, "it did not print its addresses", while_=self._runs)
        return self.addresses

    @property
    def addresses(self) -> dict[str, str]:
        found = re.findall(r"^(job manager|log) on (\S+)$", self.said, re.MULTILINE)
        return dict(found)

    @property
    def said(self) -> str:
        return self._output.read_text()

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def second(self) -> subprocess.Popen[str]:
        """Start another one on the same folder."""
        return subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    yield running
    if running._runs():
        running.end(signal.SIGKILL)
    names = {path.name for path in (tmp_path / "data" / "runs").iterdir()} | {
        EmbeddedLog(tmp_path / "data" / "log").mark
    }
    for mark in marks() & names:
        kill_all(mark)


def job(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/api/v1/jobs/prices").json()
    return found


def test_up_survives_kill_9_and_resumes_after_a_shutdown(up: Up) -> None:
    first = up.start()
    url = first["job manager"]
    refused = up.second()
    answer = httpx.post(f"{url}/api/v1/jobs", files={"file": ("job.py", PIPELINE)}, timeout=60)
    assert answer.status_code == 201, answer.text
    wait_for(lambda: job(url)["state"] == "RUNNING", "the job does not run")
    pid = job(url)["pid"]
    complaint = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2
    assert "is in use by the job manager with process id" in complaint

    up.end(signal.SIGKILL)
    second = up.start()
    assert second["log"] == first["log"]
    url = second["job manager"]
    wait_for(lambda: job(url)["state"] == "RUNNING", "the job was not adopted")
    assert (job(url)["pid"], job(url)["restarts"]) == (pid, 0)
    assert "penstock_manager_active 1.0" in httpx.get(f"{url}/metrics").text

    assert up.end(signal.SIGINT) == 0, up.said
    third = up.start()
    url = third["job manager"]
    wait_for(lambda: job(url)["state"] == "RUNNING", "the job was not resumed")
    assert job(url)["pid"] != pid
    assert up.end(signal.SIGTERM) == 0, up.said
    assert "Traceback" not in up.said


def test_only_loopback_is_open_without_tokens() -> None:
    assert Listen("127.0.0.1").is_loopback
    assert Listen("localhost").is_loopback
    assert Listen("::1").is_loopback
    assert not Listen("0.0.0.0").is_loopback
    assert not Listen("example.com").is_loopback
    assert Listen("::1").url(81) == "http://[::1]:81"


def test_jobs_start_from_the_settings_of_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text('[settings]\nparallelism = 3\ncheckpoints = "elsewhere"\n')
    assert base_settings(log="kafka:9092") == {"parallelism": 3, "log": "kafka:9092", "files": str(tmp_path)}


def test_responses_are_sent_without_waiting_for_acknowledgements() -> None:
    import socket

    from penstock.control.server import _bind

    with _bind(Listen("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    import socket

    from penstock.control.server import run_server

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortTaken, match="cannot listen"):
        run_server(data=tmp_path, port=taken.getsockname()[1])
