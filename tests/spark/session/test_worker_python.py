"""Spark's Python processes start from installed code, not from a zip that each would compile again."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import Offsets
from penstock.settings import Settings
from penstock.spark.session import planner_fork_client
from penstock.spark.session.planner_fork_client import SERVER
from penstock.spark.session.worker_python import worker_python
from penstock.testing import run_to_end
from tests.waiting import wait_for


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


def test_the_launcher_drops_sparks_zips_from_the_path_and_keeps_the_rest(cache: Path) -> None:
    path = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10-src.zip:/my own/code:/mine.zip"
    asked = [worker_python(Settings()), "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])", "a b"]
    said = subprocess.run(asked, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "/my own/code:/mine.zip ['a b']"
    assert Path(asked[0]).is_relative_to(cache)


def test_the_launcher_runs_this_python(cache: Path) -> None:
    asked = [worker_python(Settings()), "-c", "import sys; print(sys.executable)"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == sys.executable


def test_a_python_of_the_users_own_and_one_on_a_cluster_are_left_alone(cache: Path) -> None:
    assert worker_python(Settings(spark={"spark.pyspark.python": "/opt/python"})) == "/opt/python"
    assert worker_python(Settings(spark_master="spark://a:7077")) == sys.executable


def test_without_a_cache_that_can_be_written_python_is_started_directly(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file, where a folder should be")
    assert worker_python(Settings()) == sys.executable


def test_workers_are_forked_from_a_process_that_has_imported_what_they_need(settings: Settings) -> None:
    def parent(row: dict[str, object]) -> dict[str, object]:
        return {"command": Path(f"/proc/{os.getppid()}/cmdline").read_text()}

    told = ps.from_items([{"n": 1}], "n bigint").map(parent, schema="command string")
    found = run_to_end(ps.Pipeline("p", told.to(ps.collect()).named("out")), {}, settings=settings)
    assert "penstock.spark.session.worker_daemon" in found["out"][0]["command"]


def test_workers_do_not_search_imported_modules_for_garbage_after_each_task(settings: Settings) -> None:
    def frozen(row: dict[str, object]) -> dict[str, object]:
        return {"frozen": gc.get_freeze_count(), "left": len(gc.get_objects())}

    told = ps.from_items([{"n": 1}], "n bigint").map(frozen, schema="frozen bigint, left bigint")
    found = run_to_end(ps.Pipeline("p", told.to(ps.collect()).named("out")), {}, settings=settings)
    assert found["out"][0]["frozen"] > 5 * found["out"][0]["left"]


CLIENT = [sys.executable, "-I", "-S", planner_fork_client.__file__]


def told_by_spark(jvm: socket.socket, server: Path) -> dict[str, str]:
    port = str(jvm.getsockname()[1])
    return os.environ | {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "s", SERVER: str(server)}


class Telling(ps.Source):
    """A source of one row, which tells what plans its epochs."""

    name = "telling"
    schema = ps.Schema("n bigint")

    def __init__(self, told: Path) -> None:
        self.told = told

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        self.told.write_text(f"{os.getpid()} {Path(f'/proc/{os.getppid()}/cmdline').read_text()}")
        return {"0": 1}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})

    def ended(self, offsets: Offsets) -> bool:
        return offsets == {"0": 1}


def test_what_plans_a_sources_epochs_is_forked_from_the_fork_server_and_ends_with_its_query(
    settings: Settings, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    stream = ps.read(Telling(told))
    found = run_to_end(ps.Pipeline("p", stream.to(ps.collect()).named("out")), {}, settings=settings)
    assert found["out"] == [{"n": 1}]
    runner, parent = told.read_text().split(" ", 1)
    assert "penstock.spark.session.planner_fork_server" in parent
    wait_for(lambda: not Path(f"/proc/{runner}").exists(), "the runner did not end")


def test_without_a_fork_server_the_program_that_spark_starts_is_the_runner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as jvm:
        program = subprocess.Popen(CLIENT, env=told_by_spark(jvm, tmp_path / "none"), stderr=subprocess.DEVNULL)
        connection, _ = jvm.accept()
        connection.close()
        assert program.wait() == 1


@contextlib.contextmanager
def fork_server(folder: Path) -> Iterator[Path]:
    command = [sys.executable, "-m", "penstock.spark.session.planner_fork_server", str(folder)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE)
    wait_for((folder / "socket").exists, "the server does not listen")
    yield folder / "socket"
    server.communicate()
    assert server.returncode == 0


def test_the_fork_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with fork_server(tmp_path):
        pass
    assert not tmp_path.exists()


def test_a_runner_ends_when_spark_ends_the_program_that_it_started(tmp_path: Path) -> None:
    with fork_server(tmp_path) as server, socket.create_server(("127.0.0.1", 0)) as jvm:
        program = subprocess.Popen(CLIENT, env=told_by_spark(jvm, server))
        connection, _ = jvm.accept()
        program.kill()
        program.wait()
        with contextlib.suppress(ConnectionResetError), connection:
            while connection.recv(1 << 10):
                pass  # the end of the runner is the end of its connection
