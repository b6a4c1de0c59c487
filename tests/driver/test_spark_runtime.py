"""What a driver does when its JVM is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.driver.spark_runtime import JVM_ENDED

START = """
import subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from pyspark import SparkContext
from penstock.driver.spark_runtime import SparkRuntime

jvm = subprocess.Popen(["sleep", "60"])
jvm.kill()
jvm.wait()
SparkContext._gateway = SimpleNamespace(proc=jvm)
SparkRuntime(Path(sys.argv[1])).start(None)
"""


def test_a_driver_without_its_jvm_ends_when_it_is_given_another_job(tmp_path: Path) -> None:
    """The manager then starts a new driver; else a pool would restart its jobs in this one for ever."""
    done = subprocess.run([sys.executable, "-c", START, str(tmp_path / "driver.log")], capture_output=True, text=True)
    assert done.returncode == JVM_ENDED, done.stderr
    assert "the JVM of this driver has ended" in done.stderr
