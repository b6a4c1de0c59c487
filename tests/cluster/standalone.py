"""A Spark standalone cluster on this machine, from PySpark's wheel: a master and workers, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from penstock.spark.session.class_archive import start_options
from penstock.spark.session.java import find_java
from tests import waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 400
ORPHAN_SECONDS = 15
HOST = "127.0.0.1"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master (\S+)")
# Six JVMs share the machine with the test.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options() -> str:
    """Return what the JVMs of a cluster start with: Spark's classes from the archive, as a local job has them."""
    return f"{QUICK} {start_options(find_java())}".strip()


@dataclass(frozen=True)
class Cluster:
    """A master at `url`; `python` is what its executors run, and its workers' processes are `pids`."""

    url: str
    python: Path
    pids: list[int]
    start_worker: Callable[[], int]

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run now."""
        children = [child for pid in self.pids for child in psutil.Process(pid).children()]
        return [child for child in children if _is_executor(child)]

    def replace_worker(self, number: int) -> None:
        """Kill -9 a worker, whose executors then end by themselves, and start another in its place."""
        worker = psutil.Process(self.pids[number])
        orphans = worker.children(recursive=True)
        worker.kill()
        self.pids[number] = self.start_worker()
        for left in psutil.wait_procs(orphans, timeout=ORPHAN_SECONDS)[1]:
            left.kill()


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """Run a master and workers of so many cores, each with 1 GB, as long as the block lasts."""
    with ExitStack() as ends:
        url, numbers = _started(ends, folder / "master", _MASTER, "master.Master", "--port", "0")[1], count()

        def start_worker() -> int:
            work = folder / f"worker-{next(numbers)}"
            options = ["--port", "0", "--cores", str(cores), "--memory", f"{cores}g", "--work-dir", str(work), url]
            return _started(ends, work, _REGISTERED, "worker.Worker", *options)[0]

        yield Cluster(url, _python_without_us(folder), [start_worker() for _ in range(workers)], start_worker)


@contextmanager
def inside(spark: SparkSession, folder: Path, cores: int = 2) -> Iterator[Cluster]:
    """Run a master and one worker in the JVM of a session: two processes less to start, executors are there as ever."""
    context = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf(False)
    folder.mkdir(parents=True)
    with ExitStack() as ends:
        master = deploy.master.Master.startRpcEnvAndEndpoint(HOST, 0, 0, conf)._1()
        ends.callback(master.shutdown)
        urls = gateway.new_array(jvm.java.lang.String, 1)
        urls[0] = f"spark://{HOST}:{master.address().port()}"
        none = jvm.scala.Option.empty()
        work = str(folder / "worker")
        worker = deploy.worker.Worker.startRpcEnvAndEndpoint(
            HOST, 0, 0, cores, cores * 1024, urls, work, none, conf, none
        )
        ends.callback(worker.shutdown)
        made = Cluster(urls[0], _python_without_us(folder), [jvm.java.lang.ProcessHandle.current().pid()], _no_other)
        yield made
        for left in psutil.wait_procs(made.executors(), timeout=ORPHAN_SECONDS)[1]:
            left.kill()


def _no_other() -> int:
    raise NotImplementedError("a worker inside of a session's JVM cannot be killed")


def _python_without_us(folder: Path) -> Path:
    """Write an interpreter that finds installed packages but, reading no .pth files, not this checkout."""
    path = folder / "python"
    packages = sysconfig.get_path("purelib")
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


def _started(ends: ExitStack, folder: Path, says: re.Pattern[str], kind: str, *options: str) -> tuple[int, str]:
    """Start a process of the cluster; return its id and what it says once it is ready."""
    folder.mkdir(parents=True)
    log = folder / "log"
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(program), f"org.apache.spark.deploy.{kind}", "--host", HOST, "--webui-port", "0", *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=output, stderr=output)
    ends.callback(_end, process)
    wait_for(lambda: says.search(log.read_text()) or process.poll() is not None, f"{kind} did not start")
    found = says.search(log.read_text())
    assert found, log.read_text()[-2000:]
    return process.pid, found[1]


def wait_for(condition: Callable[[], object], otherwise: str) -> None:
    """Wait until something is true, as long as a loaded machine needs to start a cluster."""
    waiting.wait_for(condition, otherwise, seconds=WAIT_SECONDS)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java_options()}
    return kept | small | {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": HOST}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    try:
        root = psutil.Process(process.pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    _, alive = psutil.wait_procs(family, timeout=10)
    for left in alive:
        left.kill()
    process.wait()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in part for part in process.cmdline())
    except psutil.Error:
        return False
