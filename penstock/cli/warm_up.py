"""Make Spark's class archive: run a small pipeline, and let its JVM write down the classes that it loaded.

`python -m penstock.cli.warm_up` is what `make setup` calls; `penstock doctor --warm` does the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.spark.session.class_archive import QUIET, archive
from penstock.spark.session.java import find_java


def make_archive() -> Path | None:
    """Write the class archive of this environment and return its path; None if this Java cannot."""
    path = archive(find_java())
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    _run_with(f"-XX:ArchiveClassesAtExit={fresh} {QUIET}")
    if not fresh.exists():
        return None
    fresh.replace(path)
    return path


def _run_with(options: str) -> None:
    import penstock as ps
    from penstock.spark.session.spark_session import end_jvm
    from penstock.testing import run_to_end

    rows = ps.from_items([], "k string, v bigint, ts timestamp").named("rows").event_time("ts", "5s")
    sums = rows.key_by("k").window(ps.tumbling("10s")).aggregate(total="sum(v)")
    pipeline = ps.Pipeline("warm", sums.to(ps.collect()), rows.map(dict).to(ps.collect()).named("rows-out"))
    settings = ps.Settings(spark={"spark.driver.extraJavaOptions": options})
    run_to_end(pipeline, {"rows": []}, settings=settings)
    end_jvm()


if __name__ == "__main__":
    print(make_archive() or "this Java makes no class archive; Spark starts without it", file=sys.stderr)
