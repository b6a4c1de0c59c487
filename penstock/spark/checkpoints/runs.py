"""The runs of keyed state in a checkpoint: copying and checking them without the manifests in Spark's state.

A run is immutable, and its name has the epoch that wrote it. A copy has all runs up to its epoch; those that its
manifests do not name are deleted by later calls of their buckets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from penstock.keyed.store.run_folder import about, damage, epoch_of
from penstock.storage.folders import Folder

KEYED = "keyed"
# A view has several stores in each bucket, with a folder each.
RUN = re.compile(r"keyed/(?P<query>[^/]+)/(?P<bucket>[^/]+/\d+(?:/\d+)?)/(?P<name>(?P<epoch>\d+)-[^/]+\.run)")
_TRIES = 5


def copy_runs(source: Folder, target: Folder, epoch: int) -> None:
    """Copy or link the runs of a folder up to an epoch; those that a running job deletes meanwhile are not needed."""
    for _ in range(_TRIES):
        there = target.files()
        names = [name for name in source.files() if name not in there and _is_run_up_to(name, epoch)]
        try:
            source.copy(names, target)
        except FileNotFoundError:
            continue
        return
    message = f"{source.url}: runs were deleted while they were copied"
    raise FileNotFoundError(message)


def damage_in_run(content: bytes) -> str | None:
    """Return what is wrong with a run; None if nothing is."""
    return damage(pa.py_buffer(content))


def missing_beside(
    paths: Iterable[str], read: Callable[[str], bytes | None], newest: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield runs that are missing beside the newest run of their bucket that a committed epoch wrote.

    This is all that is known without the manifests.
    """
    buckets: dict[tuple[str, str], dict[str, str]] = {}
    for path in paths:
        if match := RUN.fullmatch(path):
            buckets.setdefault((match["query"], match["bucket"]), {})[match["name"]] = path
    for (query, _), runs in buckets.items():
        committed = [name for name in runs if epoch_of(name) <= newest.get(query, -1)]
        last = max(map(epoch_of, committed), default=-1)
        for name in (one for one in committed if epoch_of(one) == last):
            content = read(runs[name])
            if content is None or damage_in_run(content):
                continue
            folder = runs[name].rpartition("/")[0]
            for beside, *_ in about(pa.py_buffer(content))["beside"]:
                if beside not in runs:
                    yield f"{folder}/{beside}", f"is missing, and {name} needs it"


def _is_run_up_to(path: str, epoch: int) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".run") and not name.startswith(".") and epoch_of(name) <= epoch
