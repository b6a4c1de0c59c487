"""One session per process, and one JVM: it is replaced only by one that has more jars."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext

from penstock.settings import Settings
from penstock.spark.session import spark_session
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


def test_no_secret_of_the_settings_is_on_the_command_line_of_the_jvm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = {
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "Hunter-2",
        "spark.hadoop.fs.s3a.secret.key": "Hunter-2",
        "spark.hadoop.fs.s3a.proxy": "http://ada:Hunter-2@proxy",
        "spark.kafka.clusters.a.sasl": 'login required password="Hunter-2";',
    }
    given = Settings(parallelism=1, spark={"spark.jars": "a.jar", "spark.hadoop.x": "shown", **secrets})
    launched: list[dict[str, str]] = []
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(spark_session, "launch_gateway", lambda conf, **_: launched.append(dict(conf.getAll())))
    conf: SparkConf = spark_session._conf(given, "-Xshare:auto")
    spark_session._gateway(conf, tmp_path / "log")
    assert launched == [{name: value for name, value in conf.getAll() if name not in secrets}]
    assert (
        launched[0].items()
        >= {"spark.jars": "a.jar", "spark.hadoop.x": "shown", "spark.sql.ansi.enabled": "true"}.items()
    )
    assert dict(conf.getAll()).items() >= secrets.items(), "the session gets them"
