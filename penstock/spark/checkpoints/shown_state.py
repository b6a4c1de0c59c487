"""A node's state as a table: read from the files where that is possible, else by Spark, which takes long to start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.folders import Folder
from penstock.plan.portable.parts import Stays
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import read_identity
from penstock.spark.checkpoints.direct_state import Direct
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.inspect import checkpoint_at
from penstock.spark.checkpoints.layout import read_layout
from penstock.spark.checkpoints.shown_offsets import by_source
from penstock.spark.checkpoints.state_files import why_not
from penstock.spark.checkpoints.state_tables import StateTable, epoch_of, find_state


def read_state(
    root: Folder,
    settings: Settings,
    *,
    node: str | None = None,
    key: str | None = None,
    at: int | None = None,
    limit: int = 100,
    say: Callable[[str], None] = lambda text: None,
) -> StateTable:
    """Read the state of a node; `at` asks for that after an earlier epoch, `say` hears why Spark is started."""
    data = checkpoint_at(root)
    place = find_state(data, node)
    history = History(data / "queries" / place.query)
    epoch = epoch_of(history, place.number, at)
    stores = [store for store in history.stores if store.operator == place.number]
    reason = why_not(history, stores, epoch + 1)
    offsets = _offsets(data, place.query, history, epoch)
    if reason is None:
        identity = read_identity(data)
        try:
            direct = Direct(history, place, epoch, identity.first_us if identity else 0)
            return replace(direct.table(key, limit), offsets=offsets)
        except Stays as stays:
            reason = f"a result is not portable ({stays})"
    say(f"starting Spark to read the state: {reason}")
    from penstock.spark.checkpoints.state_reader import read_by_spark

    return replace(read_by_spark(root, settings, node=node, key=key, at=at, limit=limit), offsets=offsets)


def _offsets(data: Folder, query: str, history: History, epoch: int) -> dict[str, Any]:
    """Return up to where each source was read, by its name and partition."""
    layout = read_layout(data).queries.get(query)
    if layout is None or epoch not in history.logged:
        return {}
    return by_source(layout.by_source(history.offsets(epoch)))
