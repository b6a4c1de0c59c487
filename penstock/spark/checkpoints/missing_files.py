"""Spark's files that should be there and are not: gaps between those that are.

Spark removes old epochs and old state from the lower end, so what is missing in between was deleted by somebody else.
Files that a repair moved to `set-aside/` are not missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.folders import Folder
from penstock.spark.checkpoints.history import History, Store

_SET_ASIDE = re.compile(r"[^/]+/queries/(?P<query>[^/]+)/(?P<name>.+)")


def missing_files(history: History, aside: set[str], *, migrated: bool = False) -> list[str]:
    """Return the files of a query that are gone; one that is `migrated` starts in the middle of its epochs."""
    found = [
        *_logs(history, migrated),
        *_about(history),
        *(name for store in history.stores for name in _state(history, store)),
    ]
    return [name for name in dict.fromkeys(found) if name not in history.files and name not in aside]


def set_aside(data: Folder, query: str) -> set[str]:
    """Return the files of a query that repairs have moved away."""
    found = (_SET_ASIDE.fullmatch(path) for path in (data / "set-aside").files())
    return {match["name"] for match in found if match and match["query"] == query}


def _logs(history: History, migrated: bool) -> Iterator[str]:
    """Yield bounds between the oldest and the newest, and commits of all epochs but the newest."""
    epochs = sorted({*history.logged, *history.committed})
    if not epochs:
        return
    yield "metadata"
    yield from (f"offsets/{epoch}" for epoch in range(epochs[0], epochs[-1] + 1))
    first = 0 if epochs[0] == 0 and not migrated else min(history.committed, default=epochs[-1])
    yield from (f"commits/{epoch}" for epoch in range(first, epochs[-1]))


def _about(history: History) -> Iterator[str]:
    operators = {*range(history.operators), *(store.operator for store in history.stores)}
    for operator in sorted(operators) if history.committed else ():
        if not any(name.startswith(f"state/{operator}/_metadata/v2/") for name in history.files):
            yield f"state/{operator}/_metadata/metadata"
    for store in history.stores if history.committed else ():
        if store.path.split("/")[1] == "0":
            yield f"state/{store.path}/_metadata/schema"


def _state(history: History, store: Store) -> Iterator[str]:
    """Yield the changes of each epoch since the oldest that is kept."""
    if not history.committed:
        return
    newest = max(history.committed) + 1
    starts = [*([min(store.changes)] if store.changes else []), *(version + 1 for version in store.snapshots)]
    kind = _kind(history)
    oldest = 1 if 0 in history.committed and 1 not in store.snapshots else min(starts, default=newest)
    for version in range(oldest, newest + 1):
        covered = version in store.snapshots and history.repartitioned
        if version not in store.changes and not covered:
            yield f"state/{store.path}/{version}.{kind}"


def _kind(history: History) -> str:
    """Return how files of changes end."""
    names = [name for store in history.stores for changes in store.changes.values() for name in changes]
    if names:
        return names[0].rpartition(".")[2]
    return "changelog" if any(name.endswith((".zip", ".sst")) for name in history.files) else "delta"
