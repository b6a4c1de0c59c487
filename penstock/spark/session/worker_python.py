"""The Python that Spark starts for sources and functions.

Spark puts a zipped copy of PySpark before the installed one. What is in a zip is compiled again by every process that
imports it: 0.9 s instead of 0.3 s, for each of the processes that a query needs before its first row. The process that
plans a source's epochs need not import it at all, if there is a fork server to fork it from.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

from penstock.settings import Settings
from penstock.spark.session import planner_fork_client
from penstock.spark.session.java import cache_folder, write_program

_LAUNCHER = """#!/bin/sh
kept=
IFS=:
for each in $PYTHONPATH; do
  case $each in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=$kept${{kept:+:}}$each ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
if [ "$*" = "-m {module}" ] && [ -S "${server}" ]; then
  exec {python} -I -S {client}
fi
exec {python} "$@"
"""


def worker_python(settings: Settings) -> str:
    """Return the program that starts Spark's Python processes; on a cluster its path may differ from here."""
    chosen = settings.spark.get("spark.pyspark.python")
    if chosen or not settings.master.startswith("local"):
        return chosen or sys.executable
    name = hashlib.sha256(sys.executable.encode()).hexdigest()[:12]
    try:
        return str(write_program(cache_folder() / f"python-{name}", _launcher()))
    except OSError:
        return sys.executable


def _launcher() -> str:
    return _LAUNCHER.format(
        python=shlex.quote(sys.executable),
        module=planner_fork_client.MODULE,
        server=planner_fork_client.SERVER,
        client=shlex.quote(planner_fork_client.__file__),
    )


def add_penstock_to_path(settings: Settings) -> None:
    """Let processes that Spark starts on the driver find Penstock, though they run the executors' Python.

    What is sent to executors reaches all of these processes but the one that plans a stream's epochs.
    """
    if not settings.master.startswith("local"):
        folders = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
