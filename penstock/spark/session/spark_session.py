"""Spark sessions with measured defaults; one per process."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import PortTaken, SettingsError, SparkFailed
from penstock.masking import is_secret, masked_text
from penstock.settings import Settings
from penstock.spark.session.class_archive import start_options
from penstock.spark.session.jars import jars
from penstock.spark.session.java import find_java
from penstock.spark.session.planner_fork_server import start_planner_fork_server
from penstock.spark.session.worker_python import add_penstock_to_path, worker_python

# docs/decisions/015-performance-experiments.md has the measurements behind each of these.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.pollingDelay": "20",
    # Over TCP each hand-over between JVM and Python waits 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    # A pipeline of several branches has more generated classes than the 100 that Spark keeps: each epoch would compile
    # all of them again.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # What Spark hides in its own plans and logs; its default lacks a login's JAAS configuration and private keys.
    "spark.redaction.regex": "(?i)secret|passw|passphrase|token|(access|account)[.]?key|jaas|credential|key[.]pem",
}
_PROVIDERS = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_POLLING = "spark.sql.streaming.pollingDelay"
_STATE_FILES = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# What the JVM is started with: it takes these from its command line only.
_STARTS_JVM = ("spark.driver.", "spark.jars", "spark.submit.")
_lock = threading.Lock()
_current: tuple[object, SparkSession] | None = None
_is_shared = False
# What the JVM that was launched here started with.
_jars: frozenset[str] | None = None
_log: Path | None = None


def session(settings: Settings, slots: int = 0) -> SparkSession:
    """Return the session for these settings; a session with other settings is stopped first.

    `slots` asks for at least so many tasks at once, where Spark runs here and the master was not chosen.
    """
    global _current
    if settings.spark_master is None and slots > settings.cores:
        settings = replace(settings, spark_master=f"local[{slots},4]")
    # What else depends on the parallelism is set for each query, so two parallelisms on one master share a session.
    wanted = (settings.master, tuple(sorted(settings.spark.items())))
    with _lock:
        if _current is not None and _current[0] == wanted and _alive(_current[1]):
            return _current[1]
        if _current is not None and _is_shared and _alive(_current[1]):
            message = "the jobs of a pool share one Spark, and this job has another master or other Spark settings"
            raise SettingsError(message, hint="give all jobs of the pool the same, or run this one outside of the pool")
        if _current is not None:
            _current[1].stop()
        _current = (wanted, _start(settings))
        return _current[1]


def with_jars(settings: Settings, name: str) -> Settings:
    """Return the settings for a session that has a set of jars from its start.

    A JVM that was started without them is replaced.
    """
    own = settings.spark.get("spark.jars", "")
    # Where Spark runs here, it need not copy them.
    here = "local:" if settings.master.startswith("local") else ""
    wanted = ",".join([*(f"{here}{jar}" for jar in jars(name)), *([own] if own else [])])
    return replace(settings, spark={**settings.spark, "spark.jars": wanted})


def has_jvm() -> bool:
    """Return whether this process has started a JVM; what it inherits of the environment is fixed then."""
    return SparkContext._gateway is not None


def jvm_has_ended() -> bool:
    """Return whether this process had a JVM that was killed: nothing can run on it any more."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def share_session() -> None:
    """Refuse from now on other settings, for which the session would be stopped: several jobs run on it."""
    global _is_shared
    _is_shared = True


def query_name(pipeline: str, query: str, lineage: str) -> str:
    """Return the name of a query of Spark's; where jobs share a session, those of the same pipeline differ."""
    return f"{pipeline}/{query}/{lineage}" if _is_shared else f"{pipeline}/{query}"


def log_to(path: Path) -> None:
    """Let JVMs write to this process's standard error, and not to a file of their own; it is stored at `path`."""
    global _log
    _log = path


def stop_session() -> None:
    """End the session of this process, if there is one."""
    global _current
    with _lock:
        if _current is not None:
            _current[1].stop()
            _current = None


def end_jvm() -> None:
    """End the session and its JVM, and wait until the process has ended."""
    gateway = SparkContext._gateway
    stop_session()
    if gateway is not None and getattr(gateway, "proc", None) is not None:
        _end_gateway(gateway)


def _end_gateway(gateway: Any) -> None:
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=120)
    SparkContext._gateway = SparkContext._jvm = None


def query_settings(settings: Settings, *, branches: bool, fast: bool = False) -> dict[str, str]:
    """Return what is set for one query when it starts; at the fast pace Spark polls sources more often."""
    chosen = {
        _POLLING: "2" if fast else _DEFAULTS[_POLLING],
        # Of a new checkpoint: Spark stays with what it wrote there first.
        "spark.sql.shuffle.partitions": str(settings.state_partitions or settings.cores),
        "spark.sql.streaming.stateStore.providerClass": _PROVIDERS[settings.state],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": str(settings.checkpoint_retention),
        # Adaptive execution would run stages before the epoch writer is called, and change partitions on a replay.
        "spark.sql.adaptive.enabled": "false",
        # The plan decides what may follow what; Spark refuses several Python states, which are right in append mode.
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        # The tasks of a union are those of its branches, one after the other: each writes to one output.
        "spark.sql.unionOutputPartitioning": "false",
        # Branches share one exchange, and so one scan, only while each reads the same columns of it.
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.ColumnPruning" if branches else ""
        ),
    }
    return {key: settings.spark.get(key, value) for key, value in chosen.items()}


def fast_settings(settings: Settings) -> dict[str, str]:
    """Return what is set for one query in short epochs without Python."""
    return query_settings(settings, branches=False, fast=True) | {_STATE_FILES: "1"}


def realtime_settings(settings: Settings) -> dict[str, str]:
    """Return what is set for one query in real-time mode: it asks for RocksDB, and for its newer state files."""
    return query_settings(replace(settings, state="rocksdb"), branches=False) | {_STATE_FILES: "2"}


@contextlib.contextmanager
def clock_ahead(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Give a function that sets ahead, by milliseconds, the clock by which real-time mode ends its batches."""
    jvm: Any = spark._jvm
    clock = getattr(getattr(jvm.org.apache.spark.sql.execution.datasources.v2, "LowLatencyClock$"), "MODULE$")
    ahead = jvm.org.apache.spark.util.ManualClock(round(time.time() * 1000))
    clock.setClock(ahead)
    try:
        yield ahead.advance
    finally:
        clock.setClock(jvm.org.apache.spark.util.SystemClock())


def _start(settings: Settings) -> SparkSession:
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = worker_python(settings)
    if settings.master.startswith("local"):
        start_planner_fork_server()
    add_penstock_to_path(settings)
    conf = _conf(_with_jvm_for(settings), start_options(java))
    log = _log or Path(tempfile.gettempdir()) / f"penstock-spark-{os.getpid()}.log"
    try:
        gateway = _gateway(conf, log)
        handler = _handler()
        # It would print what fails as a line with the whole stack, before the error reaches the user in our words.
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        context = SparkContext(conf=conf, gateway=gateway)
        if handler is not None:
            # PySpark's own handler cancels every job: a stop would then lose the epoch it should finish.
            signal.signal(signal.SIGINT, handler)
        return SparkSession(context)
    except Exception as error:  # of Java, Py4J, sockets or PySpark: each means that Spark did not start
        if "Address already in use" in str(error) or "BindException" in str(error):
            message = "Spark cannot bind a port: it is in use"
            raise PortTaken(message, hint="free it, or leave the port to Spark (spark.*.port = 0)") from error
        message = masked_text(f"Spark did not start: {error}")
        raise SparkFailed(message, hint=f"its log is {log}; `penstock doctor` shows what was found") from error


def _with_jvm_for(settings: Settings) -> Settings:
    """End a JVM that was launched here without jars that the settings name: its threads would not know their classes.

    The next one gets what it had, too, so that it serves all sessions of this process.
    """
    global _jars
    wanted = frozenset(filter(None, settings.spark.get("spark.jars", "").split(",")))
    if not _runs(SparkContext._gateway):
        _jars = wanted
    elif _jars is not None and not wanted <= _jars:
        _end_gateway(SparkContext._gateway)
        _jars |= wanted
        return replace(settings, spark={**settings.spark, "spark.jars": ",".join(sorted(_jars))})
    return settings


def _runs(gateway: Any) -> bool:
    process = getattr(gateway, "proc", None)
    return gateway is not None and (process is None or process.poll() is None)


def _gateway(conf: SparkConf, log: Path) -> Any:
    """Return the connection to the JVM of this process, and launch that if there is none, or if it has died.

    PySpark uses the first one for every later session: another one would start, take memory and never be asked.
    """
    if _runs(SparkContext._gateway):
        return SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    shown = _without_secrets(conf)
    if _log is not None:
        return launch_gateway(shown)  # type: ignore[no-untyped-call]
    with log.open("ab") as stderr:
        return launch_gateway(shown, popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]


def _without_secrets(conf: SparkConf) -> SparkConf:
    """Return what may be on the JVM's command line, which every user reads; the session gets the rest by its socket."""
    shown = SparkConf()
    for name, value in conf.getAll():
        if not is_secret(name) and (masked_text(value) == value or name.startswith(_STARTS_JVM)):
            shown.set(name, value)
    return shown


def _conf(settings: Settings, java_options: str) -> SparkConf:
    conf = SparkConf()
    master = settings.master
    conf.setMaster(master).setAppName("penstock")
    values = dict(_DEFAULTS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        values |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        values |= {"spark.driver.memory": _heap(), "spark.sql.warehouse.dir": tempfile.gettempdir()}
        # On a cluster Penstock is sent to workers after this process has started.
        values["spark.python.daemon.module"] = "penstock.spark.session.worker_daemon"
        # Options of the user's own come after ours, and so win.
        own = settings.spark.get(_JAVA_OPTIONS, "")
        ours = "" if "ArchiveClassesAtExit" in own else f"{java_options} {_collector(settings, own)}"
        values[_JAVA_OPTIONS] = f"{ours} {own}".strip()
    for key, value in (dict(settings.spark) | values).items():
        conf.set(key, settings.spark.get(key, value) if key != _JAVA_OPTIONS else value)
    return conf


def _collector(settings: Settings, own: str) -> str:
    """On one or two cores the simple collector is as fast and takes less memory; a JVM takes one choice only."""
    return "-XX:+UseSerialGC" if settings.cores <= 2 and not re.search(r"-XX:\+Use\w*GC", own) else ""


def _heap() -> str:
    """A quarter of the machine, between 1 and 8 GiB: the rest is for Python workers and the page cache."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return f"{min(max(total // 4, 1024), 8192)}m"


def _handler() -> Any:
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.getsignal(signal.SIGINT)


def _alive(spark: SparkSession) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # Py4J, sockets and missing attributes: what a JVM that is gone raises is not declared
        return False
