"""Epochs that Spark no longer knows, though other files of the checkpoint show that they were started.

Without its offsets Spark gives the number of an epoch to other rows, and sinks get rows twice or skip them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from penstock.spark.checkpoints.history import History, state_version
from penstock.spark.checkpoints.spark_files import MISSING, files_set_aside
from penstock.spark.tasks.offset_files import replayed_ends
from penstock.spark.tasks.staging import Staging
from penstock.storage.folders import Folder

_RECORD = re.compile(r"(\d+)\.json")


def lost_offsets(data: Folder, query: str) -> Iterator[tuple[str, str]]:
    """Yield the offsets that are missing after the newest epoch of a query, and what shows that it was started."""
    # First the signs of epochs: a running job writes offsets before any of them.
    signs = _signs(data, query)
    newest = max(signs, default=-1)
    history = History(data / "queries" / query)
    if newest > history.last and newest > _newest_replayed(data, history, query):
        first = history.last + 1
        epochs = f"epoch {newest} was" if newest == first else f"epochs {first} to {newest} were"
        yield f"queries/{query}/offsets/{newest}", f"{MISSING}: {epochs} started, as {signs[newest]} shows"


def _signs(data: Folder, query: str) -> dict[int, str]:
    """Return epochs that were started, and by which file that is known."""
    found: dict[int, str] = {}
    for name in (data / "queries" / query).files():
        version = state_version(name)
        if version > 0:
            found[version - 1] = f"queries/{query}/{name}"
    with suppress(ValueError):  # reported by its own name
        found[Staging(data / "staged" / query).last_started()] = f"staged/{query}/begun"
    for name in (data / "epochs" / query).names():
        if match := _RECORD.fullmatch(name):
            found[int(match[1])] = f"epochs/{query}/{name}"
    return found


def _newest_replayed(data: Folder, history: History, query: str) -> int:
    """Return the newest epoch that a repair has rolled back and that has to run again."""
    epochs = [int(name.removeprefix("offsets/")) for name in _logged_before(data, query)]
    with suppress(ValueError):  # reported by the check of Spark's files
        epochs += [epoch for ends in replayed_ends(history.folder).values() for epoch in ends]
    return max(epochs, default=-1)


def _logged_before(data: Folder, query: str) -> Iterator[str]:
    return (name for name in files_set_aside(data, query) if re.fullmatch(r"offsets/\d+", name))
