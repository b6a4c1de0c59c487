"""The class archive: Spark's classes, loaded and verified once per environment; its JVM starts in half the time.

`make setup` and `penstock doctor --warm` make it (`penstock/cli/warm_up.py`). A JVM uses an archive only if it was made
by the same Java with the same jars at the same path, and ignores any other silently: so each environment has its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from penstock.spark.session.java import Java, cache_folder

QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def archive(java: Java) -> Path:
    """Return where the archive of this Java and this installation of Spark is, or is to be made."""
    name = f"spark-{version('pyspark')}-java-{java.version}-{_fits(java)}.jsa"
    paths = [folder / name for folder in _folders()]
    writable = [path for path in paths if os.access(_existing(path.parent), os.W_OK)]
    return next((path for path in paths if path.exists()), (writable or paths)[0])


def start_options(java: Java) -> str:
    """Return what a JVM is given to start from the archive, if there is one."""
    path = archive(java)
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path.exists() else ""


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
