"""A class archive: Spark's classes, loaded and checked once per environment, so that its JVM starts in half the time.

`make setup` and `penstock doctor --warm` make it. A JVM takes an archive only if it was made by the same Java with the
same jars at the same place, and ignores any other in silence: so each environment has its own, which goes with it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from penstock.spark.java import Java, cache_folder, find_java

_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def archive(java: Java) -> Path:
    """Return where the archive of this Java and this installation of Spark is, or is to be made."""
    name = f"spark-{version('pyspark')}-java-{java.version}-{_fits(java)}.jsa"
    places = [folder / name for folder in _folders()]
    writable = [path for path in places if os.access(_existing(path.parent), os.W_OK)]
    return next((path for path in places if path.exists()), (writable or places)[0])


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


def _folders() -> Iterator[Path]:
    yield Path(sys.prefix) / "share" / "penstock"
    yield cache_folder()


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def _fits(java: Java) -> str:
    """Name what a JVM compares: itself, and where its jars are and since when."""
    jars = _jars()
    said = f"{java.home.resolve()}:{jars}:{jars.stat().st_mtime_ns}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def _jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).resolve().parent / "jars"


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
