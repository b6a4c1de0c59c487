"""The class archive: a JVM uses it, and none is chosen that it would ignore."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.session import class_archive as warm
from penstock.spark.session.class_archive import archive, start_options
from penstock.spark.session.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = """
import sys
import penstock as ps
from penstock.spark.session.spark_session import end_jvm, session
session(ps.Settings(spark={"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={sys.argv[1]}"}))
end_jvm()
"""


def test_a_session_is_started_with_the_archive(spark: SparkSession) -> None:
    if not archive(find_java()).exists():
        pytest.skip("there is no archive: `penstock doctor --warm` makes it")
    jvm: Any = spark._jvm
    given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert any(str(archive(find_java())) in option for option in given)


@pytest.mark.slow
def test_a_session_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    if not archive(find_java()).exists():
        pytest.skip("there is no archive: `penstock doctor --warm` makes it")
    loaded = tmp_path / "classes"
    subprocess.run([sys.executable, "-c", START, str(loaded)], check=True, timeout=300)
    lines = loaded.read_text().splitlines()
    sources = [line for line in lines if " org.apache.spark." in line and "Lambda" not in line]
    taken = [line for line in sources if "shared objects file" in line]
    assert len(taken) > 0.8 * len(sources) > 500


def test_another_java_or_installation_of_spark_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    java = find_java()
    here = archive(java)
    assert here.name != archive(replace(java, home=Path("/elsewhere"))).name
    with monkeypatch.context() as patched:
        patched.setattr(warm, "_jars", lambda: Path(os.devnull))
        assert here.name != archive(java).name
        assert start_options(java) == ""


def test_an_archive_goes_with_its_environment_or_where_that_is_not_ours_to_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = find_java()
    assert archive(java).parent == tmp_path / "environment" / "share" / "penstock"
    cached = tmp_path / "cache" / "penstock" / archive(java).name
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"")
    assert archive(java) == cached
