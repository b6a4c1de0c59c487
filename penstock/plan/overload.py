"""Overload: what becomes of rows that come faster than a job can read them.

Epochs are bounded in any case; the choice is what the rows that wait meanwhile cost whom.
"""

from __future__ import annotations

from typing import Literal, get_args

from penstock.errors import BadValue, OverloadRefused, choices
from penstock.plan.graph import Graph
from penstock.plan.nodes import Read

Overload = Literal["block", "drop", "spill"]
OVERLOADS: tuple[Overload, ...] = get_args(Overload)


def check_overload(overload: str, graph: Graph, pace: str) -> None:
    """Raise if a pipeline cannot do so: at which source, and what can be done."""
    if overload not in OVERLOADS:
        message = f"overload={overload!r} is not known"
        raise BadValue(message, hint=choices("overload", OVERLOADS, str(overload)))
    if overload != "drop":
        return
    if pace == "realtime":
        message = 'pace="realtime" has no epochs, so nothing decides which rows are dropped'
        raise OverloadRefused(message, hint='use overload="block", or pace="fast"')
    for read in graph.reads:
        if not read.source.can_drop:
            message = f"{type(read.source).__name__} cannot tell how far behind one is, so none of its rows are dropped"
            hint = 'use overload="block"; topics and datagen with rate= can drop'
            raise OverloadRefused(message, node=graph.label(read), hint=hint)


def overload_text(overload: Overload, graph: Graph) -> str:
    """Say in one line what a pipeline does, as `explain` prints it."""
    names = [graph.name(read) for read in graph.reads]
    if overload == "drop":
        return "overload drop: of a source that is further behind than max_lag_rows, the oldest rows are left out"
    if overload == "block":
        return "overload block: rows that are not read yet wait in their source"
    spilled = [graph.name(read) for read in graph.reads if read.source.can_spill]
    kept = [name for name in names if name not in spilled]
    parts = [f"{', '.join(spilled)} is taken off at once, into the checkpoint"] if spilled else []
    parts += [f"{', '.join(kept)} keeps its rows anyway, as with block"] if kept else []
    return f"overload spill: {'; '.join(parts)}"


def spills(read: Read, overload: Overload) -> bool:
    """Say whether a source has to take its rows off their sender at once."""
    return overload == "spill" and read.source.can_spill
