"""One session per process, and one JVM: it is replaced only by one that has more jars."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.settings import Settings
from penstock.spark.session.spark_session import session


def jvm() -> int:
    return int(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]


# Two JVMs. In short the class archive's test has the JVM that all tests share.
@pytest.mark.slow
def test_a_jvm_that_was_started_without_the_jars_of_a_session_is_replaced_by_one_that_has_them(
    settings: Settings, tmp_path: Path
) -> None:
    jar = tmp_path / "more.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("found.txt", "here")
    session(settings)
    first = jvm()
    with_jar = session(replace(settings, spark={**settings.spark, "spark.jars": str(jar)}))
    second = jvm()
    assert second != first
    assert with_jar.range(3).count() == 3
    loader = with_jar._jvm.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    assert loader.getResource("found.txt") is not None
    session(settings)
    assert jvm() == second, "a JVM that has more jars serves other sessions too"
