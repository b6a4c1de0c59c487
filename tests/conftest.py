"""What all tests share: one Spark session for the whole run, and every row of a pipeline in memory."""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import hypothesis
import pytest

from penstock import testing
from penstock.settings import Settings
from penstock.testing import quick_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.databases import PostgresServer

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")

# The JVMs of tests live for seconds: compiling their code thoroughly takes a core from those who wait.
# Hadoop starts `chmod` for each file of a checkpoint: on Linux that takes less without a helper process in between.
_VFORK = " -Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""
os.environ.setdefault("JDK_JAVA_OPTIONS", f"-XX:TieredStopAtLevel=1{_VFORK}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--slow"):
        del testing._QUICK["spark.sql.codegen.wholeStage"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-runs", type=int, default=1, help="how often the crash suite kills a job")
    parser.addoption("--slow", action="store_true", help="also run what `make test` leaves to `make test-slow`")


# Workers end at the same time if what takes longest is started first.
LONGEST = ("property", "benchmarks", "crash", "cluster", "docs", "e2e", "dashboard", "driver")
# What computes runs beside what waits for servers, so that cores are neither idle nor fought over.
COMPUTING = ("spark", "contract", "native", "query", "incremental")
TESTS = Path(__file__).parent


def _folder(path: Path) -> str:
    return path.relative_to(TESTS).parts[0]


def _in_order(files: Iterable[Path]) -> list[Path]:
    """Return the files in the order in which workers take them."""
    longest, computing, waiting = [], [], []
    for path in files:
        folder = _folder(path)
        (longest if folder in LONGEST else computing if folder in COMPUTING else waiting).append(path)
    longest.sort(key=lambda path: LONGEST.index(_folder(path)))
    computing.sort(key=lambda path: COMPUTING.index(_folder(path)))
    mixed = [(at / len(kind), path) for kind in (computing, waiting) for at, path in enumerate(kind)]
    return longest + [path for _, path in sorted(mixed)]


# What compares the lanes runs in both in any case; other tests run in the chosen lane first.
IN_BOTH_LANES = (
    "test_lanes_agree.py",
    "test_properties.py",
    "test_fallible_expressions.py",
    "test_row_accounting.py",
    "test_map_columns.py",
)


def _is_second_lane(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("lane") == "spark" and item.path.name not in IN_BOTH_LANES


# The log's own clients are tried on Kafka too, to know that the tests ask for what Kafka does: not in every run.
ON_KAFKA_TOO = ("contract", "spark")


def _is_second_broker(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("broker") == "kafka" and _folder(item.path) not in ON_KAFKA_TOO


# Of these long lists of cases every other one runs in short.
EVERY_OTHER = (
    "incremental/circuit/test_operators.py",
    "query/relations/test_nexmark.py",
    "query/relations/test_queries.py",
    "query/relations/test_tpch.py",
    "log/network/test_frames.py",
    "log/storage/test_power_loss.py",
    "native/test_fallible_expressions.py",
    "native/test_expression_values.py",
    "control/rest/test_real_manager.py",
    "dashboard/test_pages.py",
    "e2e/test_log_clients.py",
)


def _every_other(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return every second case of each function in the files above."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        listed = item.path.relative_to(TESTS).as_posix() in EVERY_OTHER
        if listed and hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            cases.setdefault((item.path, item.originalname), []).append(item)
    return [item for function in cases.values() for item in function[1::2]]


# Which crashes a `Crash()` of the test kit is: both where crashes are the subject, else one, chosen by the test's
# name: half of the tests have each.
CRASHES = testing._CRASHES
BOTH_CRASHES = ("test_windows.py", "test_test_kit.py", "test_new_operator.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    both = item.config.getoption("--slow") or item.path.name in BOTH_CRASHES
    testing._CRASHES = CRASHES if both else (CRASHES[crc32(item.nodeid.encode()) % 2],)


# In short most tests try one of the two moments: `make test-slow` tries both in each test that crashes a job.
@functools.cache
def _crashing_functions(path: Path) -> frozenset[str]:
    """Return the functions of a module that have a `Crash()`, tests and fixtures among them, and who calls those."""
    source = path.read_text("utf-8")
    if "Crash()" not in source:
        return frozenset()
    functions = [one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)]
    names = {one.name: {each.id for each in ast.walk(one) if isinstance(each, ast.Name)} for one in functions}
    crashing = {"Crash"}
    while more := {name for name, used in names.items() if used & crashing} - crashing:
        crashing |= more
    return frozenset(crashing)


def _crashes(item: pytest.Item) -> bool:
    used = {getattr(item, "originalname", item.name), *getattr(item, "fixturenames", ())}
    return item.path.name not in BOTH_CRASHES and bool(used & _crashing_functions(item.path))


# Property tests draw other examples in every run: in short a fifth of them, and `make test-slow` draws them all.
FEWEST_EXAMPLES = 10


def _draw_fewer_examples(item: pytest.Item) -> None:
    function = getattr(item, "function", None)
    chosen = getattr(function, "_hypothesis_internal_use_settings", None)
    if chosen is not None and chosen.max_examples > FEWEST_EXAMPLES:
        fewer = max(FEWEST_EXAMPLES, chosen.max_examples // 5)
        function._hypothesis_internal_use_settings = type(chosen)(chosen, max_examples=fewer)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests in order, and leave out slow ones, unless they are asked for.

    Each slow test is a longer form of one that always runs.
    """
    order = {path: at for at, path in enumerate(_in_order(dict.fromkeys(item.path for item in items)))}
    items.sort(key=lambda item: order[item.path])
    slow = config.getoption("--slow")
    for item in items:
        if _is_second_lane(item) or _is_second_broker(item) or (slow and _crashes(item)):
            item.add_marker(pytest.mark.slow)
    for item in _every_other(items):
        item.add_marker(pytest.mark.slow)
    if not slow:
        for item in items:
            _draw_fewer_examples(item)
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: make test-slow"))


# Rows are cut in one partition or in two, chosen by the file's name: a third of the files have two.
@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest, shared_settings: Settings) -> Settings:
    """Settings that all tests of a file share, on the session of all tests."""
    one = not request.config.getoption("--slow") and crc32(request.path.name.encode()) % 3
    return at_parallelism(shared_settings, 1) if one else shared_settings


@pytest.fixture(scope="session")
def shared_settings() -> Settings:
    """Settings with which one session serves all tests; those of `make test-slow` compile plans, as jobs do."""
    return replace(quick_settings(), parallelism=2)


@pytest.fixture
def spark(settings: Settings) -> SparkSession:
    """The session itself, for tests that compare with Spark; made anew if a test with other settings has ended it."""
    from penstock.spark.session.spark_session import session

    return session(settings)


def at_parallelism(settings: Settings, parallelism: int) -> Settings:
    """Cut rows in so many partitions, on the session that all tests share."""
    return replace(settings, parallelism=parallelism, spark_master=settings.master)


def at(seconds: float) -> datetime:
    """A time some seconds into 2026."""
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The address of Apache Kafka, one node for the whole run; skips where it cannot be had."""
    from tests.brokers import running_kafka

    with running_kafka() as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def event_log() -> Iterator[str]:
    """The address of Penstock's own log, one for the whole run."""
    from benchmarks.peers.penstock_log import PenstockServer

    with PenstockServer() as server:
        yield server.bootstrap


@pytest.fixture(params=["event_log", "kafka"])
def broker(request: pytest.FixtureRequest) -> str:
    """Both brokers, one after the other: what holds on one must hold on the other."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL, one server for the whole run."""
    from tests.databases import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """The variables by which a real S3 server is reached, one for the whole run."""
    from tests.s3 import running_s3

    with running_s3() as variables:
        yield variables


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[int]:
    """Arrow batches of so many rows: partitions of several batches need not be large."""
    name, rows = "spark.sql.execution.arrow.maxRecordsPerBatch", 100
    before = spark.conf.get(name)
    spark.conf.set(name, str(rows))
    yield rows
    spark.conf.set(name, before)
