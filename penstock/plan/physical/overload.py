"""Overload policies: what happens to rows that arrive faster than a job can read them.

Epochs are bounded in any case; the policy decides where the other rows wait, or whether they are dropped.
"""

from __future__ import annotations

from typing import Literal, get_args

from penstock.errors import BadValue, OverloadRefused, choices
from penstock.plan.graph import Graph
from penstock.plan.operators.stateless import Read

Overload = Literal["block", "drop", "spill"]
OVERLOADS: tuple[Overload, ...] = get_args(Overload)


def check_overload(overload: str, graph: Graph, pace: str) -> None:
    """Raise OverloadRefused if a source does not support the policy, with the alternatives."""
    if overload not in OVERLOADS:
        message = f"unknown overload policy {overload!r}"
        raise BadValue(message, hint=choices("overload", OVERLOADS, str(overload)))
    if overload != "drop":
        return
    if pace == "realtime":
        message = 'pace="realtime" has no epochs, so nothing decides which rows are dropped'
        raise OverloadRefused(message, hint='use overload="block", or pace="fast"')
    for read in graph.reads:
        if not read.source.can_drop:
            message = f"{type(read.source).__name__} cannot report its lag, so it cannot drop rows"
            hint = 'use overload="block"; topics and datagen with rate= can drop'
            raise OverloadRefused(message, node=graph.label(read), hint=hint)


def overload_text(overload: Overload, graph: Graph) -> str:
    """Return the policy in one line, as `explain` prints it."""
    names = [graph.name(read) for read in graph.reads]
    if overload == "drop":
        return "overload drop: if the lag of a source exceeds max_lag_rows, its oldest rows are dropped"
    if overload == "block":
        return "overload block: rows that are not read yet wait in their source"
    spilled = [graph.name(read) for read in graph.reads if read.source.can_spill]
    kept = [name for name in names if name not in spilled]
    parts = [f"{', '.join(spilled)} is read into the checkpoint at once"] if spilled else []
    parts += [f"{', '.join(kept)} stores its rows anyway, as with block"] if kept else []
    return f"overload spill: {'; '.join(parts)}"


def spills(read: Read, overload: Overload) -> bool:
    """Return whether a source must read its rows into the checkpoint at once."""
    return overload == "spill" and read.source.can_spill
