"""A class archive: Spark's classes, loaded and checked once per machine, so that its JVM starts in about half the time.

`make setup` and `penstock doctor --warm` make it. A JVM that it does not fit (another Java, another Spark) ignores it.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

from penstock.spark.java import Java, cache_folder, find_java

_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def archive(java: Java) -> Path:
    """Return where the archive of this Java and this Spark is kept."""
    return cache_folder() / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def start_options(java: Java) -> str:
    """Return what a JVM is given to start from the archive, if there is one."""
    path = archive(java)
    return f"-XX:SharedArchiveFile={path} {_QUIET}" if path.exists() else ""


def make_archive() -> Path | None:
    """Run a small pipeline and let its JVM write down the classes that it loaded; None if this Java cannot."""
    path = archive(find_java())
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    _run_with(f"-XX:ArchiveClassesAtExit={fresh} {_QUIET}")
    if not fresh.exists():
        return None
    fresh.replace(path)
    return path


def _run_with(options: str) -> None:
    import penstock as ps
    from penstock.spark.session import end_jvm
    from penstock.testing import run_to_end

    rows = ps.from_items([], "k string, v bigint, ts timestamp").named("rows").event_time("ts", "5s")
    sums = rows.key_by("k").window(ps.tumbling("10s")).aggregate(total="sum(v)")
    pipeline = ps.Pipeline("warm", sums.to(ps.collect()), rows.map(dict).to(ps.collect()).named("rows-out"))
    settings = ps.Settings(spark={"spark.driver.extraJavaOptions": options})
    run_to_end(pipeline, {"rows": []}, settings=settings)
    end_jvm()


if __name__ == "__main__":
    print(make_archive() or "this Java makes no class archive; Spark starts without it", file=sys.stderr)
