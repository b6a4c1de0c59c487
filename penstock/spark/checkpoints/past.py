"""The queries of a checkpoint as another plan wrote them: their files, the places of their parts, how far they came."""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.errors import CheckpointDamaged, CheckpointMismatch
from penstock.spark.checkpoints.changing import Migration
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.layout import Layout, QueryLayout

# Spark's word for a source that was not read yet.
UNREAD = "-"
# The file with the highest epoch of each query that there ever was.
REACHED = "reached"
NEW_CHECKPOINT = "choose another --checkpoint folder for the new version"


@dataclass(frozen=True)
class Begun:
    """A query as it was: its files and places, its last epoch that is done, and one that is not.

    `ahead` is how much higher its epochs are numbered from now on.
    """

    history: History
    places: QueryLayout
    done: int
    open: int | None = None
    ahead: int = 0

    def lines(self, epoch: int) -> dict[str, str]:
        """Return up to where an epoch reads each source, as Spark wrote it."""
        lines = self.history.read(f"offsets/{epoch}").decode().splitlines()[2:]
        return dict(zip(self.places.sources, lines, strict=True))


class Past:
    """All queries of the old plan."""

    def __init__(self, change: Migration, layout: Layout) -> None:
        self.queries: dict[str, Begun] = {}
        try:
            self.reached: dict[str, int] = json.loads(change.old.read(REACHED) or "{}")
        except ValueError as error:
            message = f"{change.old}/{REACHED} cannot be read: {error}"
            raise CheckpointDamaged(message, hint=NEW_CHECKPOINT) from error
        for name in (change.old / "queries").names():
            history = History(change.old / "queries" / name)
            if history.logged and name not in layout.queries:
                message = f"checkpoint {change.old} does not say what the parts of query '{name}' belong to"
                raise CheckpointMismatch(message, hint=NEW_CHECKPOINT)
            if history.logged:
                done = max(history.committed, default=-1)
                newest = history.logged[-1]
                self.queries[name] = Begun(history, layout.queries[name], done, newest if newest > done else None)
                self.reached[name] = newest

    def of(self, name: str) -> Begun | None:
        """Return a query's past; a new one goes on after the others' last epoch, so that it begins where they are.

        If it was there before, sinks know its epochs: then it goes on after all that they can know.
        """
        if name in self.queries or not self.queries:
            return self.queries.get(name)
        newest = max(self.queries.values(), key=lambda one: one.done)
        if newest.done < 0:
            return None
        ahead = max(self.reached.get(name, -1) - newest.done, 0)
        return Begun(newest.history, newest.places, newest.done, ahead=ahead)

    def line(self, source: str) -> str:
        """Return up to where any query has read a source."""
        found = (one.lines(one.done).get(source) for one in self.queries.values() if one.done >= 0)
        return next((line for line in found if line), UNREAD)
