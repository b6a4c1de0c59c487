"""Where a node's state is, and the table that it is shown as."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.errors import BadValue, CheckpointMissing, choices
from penstock.folders import Folder
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.layout import Operator, read_layout

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a node's state is: a query, and the number that Spark gave the operator there."""

    query: str
    number: int
    operator: Operator


@dataclass(frozen=True)
class StateTable:
    """State after an epoch, ordered by key; `more` if there are rows beyond those; `offsets` is what was read."""

    node: str
    epoch: int
    columns: list[str]
    rows: list[Row]
    more: bool
    offsets: dict[str, Any] = field(default_factory=dict)


def find_state(data: Folder, node: str | None) -> Place:
    """Return where the state of a node is; of one that several branches share, the first."""
    found: dict[str, Place] = {}
    for query, layout in read_layout(data).queries.items():
        for number, operator in enumerate(layout.operators):
            found.setdefault(operator.node, Place(query, number, operator))
    if not found:
        message = f"{data} has no state"
        hint = "only aggregate, reduce, deduplicate, process and joins keep any, from the first epoch that is finished"
        raise CheckpointMissing(message, hint=hint)
    if node is None and len(found) > 1:
        message = "several nodes have state"
        raise BadValue(message, hint=f"choose one with --node; {choices('nodes', found)}")
    if node is not None and node not in found:
        message = f"no node '{node}' has state in {data}"
        raise CheckpointMissing(message, hint=choices("nodes that have", found, node))
    return found[node] if node is not None else next(iter(found.values()))


def epoch_of(history: History, number: int, at: int | None) -> int:
    """Return the newest epoch whose state is kept, or the one that is asked for."""
    stores = [store for store in history.stores if store.operator == number]
    kept = [e for e in history.committed if stores and all(next(s.chains(e + 1), None) for s in stores)]
    if not kept:
        message = f"{history.folder} has no state yet"
        raise CheckpointMissing(message, hint="wait for the first epoch of the job", transient=True)
    if at is None:
        return kept[-1]
    if at not in kept:
        message = f"the state after epoch {at} is not kept"
        raise CheckpointMissing(message, hint=f"epochs from {kept[0]} to {kept[-1]} are")
    return at
