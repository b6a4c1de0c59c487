"""What the epochs of one query did, kept in the checkpoint so that a restart goes on counting.

A record holds the totals up to its epoch; a replayed epoch adds to the record before it, so nothing counts twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.errors import CheckpointDamaged
from penstock.folders import Folder
from penstock.report import Counts, Report, Watermark
from penstock.settings import RETENTION

if TYPE_CHECKING:
    from penstock.plan.graph import Graph


@dataclass
class Totals:
    """Sums over all epochs so far, and the newest time that entered each event time.

    `rows` are by the names of sinks, `counts` by the ids of nodes. Where an event time follows partitions, `newest` is
    the smallest over them, and `partitions` has each one's.
    """

    epochs: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)

    def plus(
        self,
        rows: dict[str, int],
        counts: dict[str, dict[str, int]],
        newest: Mapping[str, int] | None = None,
        partitions: Mapping[str, dict[str, int]] | None = None,
    ) -> Totals:
        """Return the totals with one epoch more.

        `newest` are the newest times that came in it, in microseconds; `partitions` are those up to it by partition.
        """
        seen = newest or {}
        return Totals(
            self.epochs + 1,
            _sum(self.rows, rows),
            {n: _sum(self.counts.get(n, {}), counts.get(n, {})) for n in {**self.counts, **counts}},
            self.newest | {key: max(at, self.newest.get(key, at)) for key, at in seen.items()},
            self.partitions | dict(partitions or {}),
        )

    def renamed(self, ids: Mapping[str, str]) -> Totals:
        """Return the same with other ids of nodes."""
        return replace(self, counts={ids.get(node, node): counted for node, counted in self.counts.items()})


def rename_records(folder: Folder, ids: Mapping[str, str]) -> None:
    """Rewrite the records of all queries with the ids that nodes have now."""
    for name in folder.files() if ids else ():
        found = folder.read(name)
        if found is not None and name.endswith(".json"):
            totals = _totals(found, f"{folder}/{name}").renamed(ids)
            folder.write(name, json.dumps(totals.__dict__).encode(), sync=False)


class Records:
    """The newest records of one query, as many as there are epochs to go back to."""

    def __init__(self, folder: Folder, keep: int = RETENTION, ids: Mapping[str, str] | None = None) -> None:
        """Open them; `ids` are the ids that nodes have now, where older records call them otherwise."""
        self.folder, self.keep, self.ids = folder, keep, ids or {}
        self._numbers = sorted(int(name.removesuffix(".json")) for name in folder.names() if name.endswith(".json"))
        self._last: tuple[int, Totals] | None = None

    def before(self, epoch: int) -> Totals:
        """Return the totals before an epoch; epochs that ran elsewhere may be missing."""
        return self._read(max((number for number in self._numbers if number < epoch), default=None))

    def newest(self) -> Totals:
        """Return the totals after the last epoch."""
        return self._read(max(self._numbers, default=None))

    def write(self, epoch: int, totals: Totals) -> None:
        """Keep the totals after an epoch, and forget those of epochs that nobody can go back to."""
        self.folder.write(f"{epoch}.json", json.dumps(totals.__dict__).encode(), sync=False)
        self._last = (epoch, totals)
        # Records of later epochs are there after someone went back to this one.
        kept = [*(number for number in self._numbers if number < epoch), epoch][-self.keep - 1 :]
        for number in {*self._numbers} - {*kept}:
            self.folder.remove(f"{number}.json")
        self._numbers = kept

    def _read(self, number: int | None) -> Totals:
        if self._last is not None and number == self._last[0]:
            return self._last[1]
        found = None if number is None else self.folder.read(f"{number}.json")
        return _totals(found, f"{self.folder}/{number}.json").renamed(self.ids) if found is not None else Totals()


def totals_before(folder: Folder, epoch: int) -> Totals:
    """Return the totals before an epoch: most often the last that were written."""
    found = folder.read(f"{epoch - 1}.json")
    return _totals(found, f"{folder}/{epoch - 1}.json") if found is not None else Records(folder).before(epoch)


def _totals(content: bytes, where: str) -> Totals:
    try:
        return Totals(**json.loads(content))
    except (ValueError, TypeError) as error:
        message = f"{where}: the record of an epoch cannot be read: {error}"
        raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what else is damaged") from error


def reported(
    newest: Iterable[Totals],
    graph: Graph,
    *,
    watermark: datetime | None = None,
    watermarks: tuple[Watermark, ...] = (),
    ended: bool = False,
) -> Report:
    """Put the totals of a run's queries together."""
    first = watermarks[0].at if watermarks else watermark
    report = Report(watermark=first, watermarks=watermarks, ended=ended)
    for totals in newest:
        report.epochs = max(report.epochs, totals.epochs)
        report.rows = _sum(report.rows, totals.rows)
        for id, counted in totals.counts.items():
            report.counts[_public(id, graph)] = Counts(**counted)
    report.former_sinks = tuple(sorted(report.rows.keys() - _sinks(graph)))
    return report


def _sinks(graph: Graph) -> set[str]:
    return {graph.own_name(write) for write in graph.writes} | {one.name for one in (graph.rejected_to,) if one}


def _public(id: str, graph: Graph) -> str:
    """Return a node's name as reports have it; one that the plan does not have any more is called as it was."""
    names = {graph.id(node): name for node, name in graph.names.items()}
    bare = id.removeprefix("source ").removeprefix("sink ")
    return names.get(id) or (id if bare in names.values() else bare)


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}
