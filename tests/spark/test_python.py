"""Spark's Python processes start from installed code, not from a zip that each would compile anew."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.spark.python import worker_python
from penstock.testing import run_to_end


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
    assert "penstock.spark.daemon" in found["out"][0]["command"]


def test_workers_do_not_search_imported_modules_for_garbage_after_each_task(settings: Settings) -> None:
    def frozen(row: dict[str, object]) -> dict[str, object]:
        return {"frozen": gc.get_freeze_count(), "left": len(gc.get_objects())}

    told = ps.from_items([{"n": 1}], "n bigint").map(frozen, schema="frozen bigint, left bigint")
    found = run_to_end(ps.Pipeline("p", told.to(ps.collect()).named("out")), {}, settings=settings)
    assert found["out"][0]["frozen"] > 5 * found["out"][0]["left"]
