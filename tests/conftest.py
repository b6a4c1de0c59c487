"""What all tests share: one Spark session for the whole run, and every row of a pipeline in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.settings import Settings
from penstock.testing import quick_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-runs", type=int, default=1, help="how often the crash suite kills a job")


@pytest.fixture(scope="session")
def settings() -> Settings:
    """Settings that every test shares, so that one session serves them all."""
    return replace(quick_settings(), parallelism=2)


@pytest.fixture(scope="session")
def spark(settings: Settings) -> Iterator[SparkSession]:
    """The session itself, for tests that compare with Spark."""
    from penstock.spark.session import session

    return session(settings)


def at(seconds: float) -> datetime:
    """A time some seconds into 2026."""
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
