"""What all tests share: one Spark session for the whole run, and every row of a pipeline in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from penstock import testing
from penstock.settings import Settings
from penstock.testing import quick_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.databases import PostgresServer

# The JVMs of tests live for seconds: compiling their code thoroughly takes a core from those who wait.
# Hadoop starts `chmod` for each file of a checkpoint: on Linux that takes less without a helper process in between.
_VFORK = " -Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""
os.environ.setdefault("JDK_JAVA_OPTIONS", f"-XX:TieredStopAtLevel=1{_VFORK}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-runs", type=int, default=1, help="how often the crash suite kills a job")
    parser.addoption("--slow", action="store_true", help="also run what `make test` leaves to `make test-slow`")


# Two workers end at the same time if what takes longest is begun first.
LONGEST_FIRST = (
    *("crash", "cluster", "docs", "e2e", "dashboard", "driver"),
    *("benchmarks", "spark", "property", "native", "cli"),
)
TESTS = Path(__file__).parent


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


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
    folder = item.path.relative_to(TESTS).parts[0]
    return call is not None and call.params.get("broker") == "kafka" and folder not in ON_KAFKA_TOO


# Which crashes a `Crash()` of the test kit is: both where crashes are the subject, else one, chosen by the test's
# name: half of the tests have each.
CRASHES = testing._CRASHES
BOTH_CRASHES = ("test_windows.py", "test_test_kit.py", "test_new_operator.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    both = item.config.getoption("--slow") or item.path.name in BOTH_CRASHES
    testing._CRASHES = CRASHES if both else (CRASHES[crc32(item.nodeid.encode()) % 2],)


# Property tests draw other examples in every run: in short a third of them, and `make test-slow` draws them all.
FEWEST_EXAMPLES = 15


def _draw_fewer_examples(item: pytest.Item) -> None:
    function = getattr(item, "function", None)
    chosen = getattr(function, "_hypothesis_internal_use_settings", None)
    if chosen is not None and chosen.max_examples > FEWEST_EXAMPLES:
        fewer = max(FEWEST_EXAMPLES, chosen.max_examples // 3)
        function._hypothesis_internal_use_settings = type(chosen)(chosen, max_examples=fewer)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and leave out slow tests, unless they are asked for.

    Each slow test is a longer form of one that always runs.
    """
    items.sort(key=_place)
    for item in items:
        if _is_second_lane(item) or _is_second_broker(item):
            item.add_marker(pytest.mark.slow)
    if not config.getoption("--slow"):
        for item in items:
            _draw_fewer_examples(item)
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: make test-slow"))


@pytest.fixture(scope="session")
def settings() -> Settings:
    """Settings that every test shares, so that one session serves them all."""
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
