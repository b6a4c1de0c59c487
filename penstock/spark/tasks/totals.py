"""Totals over the epochs of one query, stored in the checkpoint so that a restart goes on counting.

An entry holds the totals up to its epoch; a replayed epoch adds to the entry before it, so nothing counts twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import CheckpointDamaged
from penstock.settings import RETENTION
from penstock.storage.folders import Folder


@dataclass
class Totals:
    """Sums over all epochs so far, and the newest time that entered each event time.

    `rows` are by the names of sinks, `counts` by the ids of nodes. Where an event time follows partitions, `newest` is
    the smallest over them, and `partitions` has each one's. `state` is the size of keyed state in buckets, by
    the ids of nodes.

    `first_by_input` and `starts_recorded` tell whether small files of the staging area were written, so that one that
    is lost is not taken for one that an earlier version did not write: from which epoch on ids contain bounds, and
    that the start of each epoch is recorded. Entries of earlier versions do not have them.
    """

    epochs: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    state: dict[str, dict[str, int]] = field(default_factory=dict)
    first_by_input: int | None = None
    starts_recorded: bool = False

    def plus(
        self,
        rows: dict[str, int],
        counts: dict[str, dict[str, int]],
        newest: Mapping[str, int] | None = None,
        partitions: Mapping[str, dict[str, int]] | None = None,
        state: Mapping[str, dict[str, int]] | None = None,
    ) -> Totals:
        """Return the totals with one epoch more.

        `newest` are the newest times that came in it, in microseconds; `partitions` are those up to it by partition;
        `state` is by how much keyed state has grown.
        """
        seen, grown = newest or {}, state or {}
        return replace(
            self,
            epochs=self.epochs + 1,
            rows=summed(self.rows, rows),
            counts={n: summed(self.counts.get(n, {}), counts.get(n, {})) for n in {**self.counts, **counts}},
            newest=self.newest | {key: max(at, self.newest.get(key, at)) for key, at in seen.items()},
            partitions=self.partitions | dict(partitions or {}),
            state={n: summed(self.state.get(n, {}), grown.get(n, {})) for n in {**self.state, **grown}},
        )

    def renamed(self, ids: Mapping[str, str]) -> Totals:
        """Return the same with other ids of nodes."""
        counts, state = ({ids.get(id, id): one for id, one in known.items()} for known in (self.counts, self.state))
        return replace(self, counts=counts, state=state)

    def without_state(self, ids: Collection[str]) -> Totals:
        """Return the same, where nodes have lost their state."""
        return replace(self, state={id: size for id, size in self.state.items() if id not in ids})


def rename_totals(folder: Folder, ids: Mapping[str, str], lost: Collection[str]) -> None:
    """Rewrite the totals of all queries with the current ids of nodes, without the state sizes of `lost` ones."""
    for name in folder.files() if ids or lost else ():
        found = folder.read(name)
        if found is not None and name.endswith(".json"):
            totals = _totals(found, f"{folder}/{name}").renamed(ids).without_state(lost)
            folder.write(name, json.dumps(totals.__dict__).encode(), sync=False)


class TotalsLog:
    """The newest totals of one query, for as many epochs as can be restored."""

    def __init__(self, folder: Folder, keep: int = RETENTION, ids: Mapping[str, str] | None = None) -> None:
        """Open the log; `ids` are the current ids of nodes, where older entries have others."""
        self.folder, self.keep, self.ids = folder, keep, ids or {}
        self._numbers = sorted(int(name.removesuffix(".json")) for name in folder.names() if name.endswith(".json"))
        self._last: tuple[int, Totals] | None = None

    def before(self, epoch: int) -> Totals:
        """Return the totals before an epoch; entries of epochs that ran elsewhere may be missing."""
        return self._read(max((number for number in self._numbers if number < epoch), default=None))

    def at(self, epoch: int) -> Totals | None:
        """Return the totals after an epoch, None if it has none."""
        return self._read(epoch) if epoch in self._numbers else None

    def newest(self) -> Totals:
        """Return the totals after the last epoch."""
        return self._read(max(self._numbers, default=None))

    def has(self, epoch: int) -> bool:
        """Return whether an epoch was recorded."""
        return epoch in self._numbers

    def write(self, epoch: int, totals: Totals) -> None:
        """Store the totals after an epoch, and delete those of epochs that cannot be restored any more."""
        self.folder.write(f"{epoch}.json", json.dumps(totals.__dict__).encode(), sync=False)
        self._last = (epoch, totals)
        # There are later entries after a restore of this epoch.
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
    return _totals(found, f"{folder}/{epoch - 1}.json") if found is not None else TotalsLog(folder).before(epoch)


def _totals(content: bytes, where: str) -> Totals:
    try:
        return Totals(**json.loads(content))
    except (ValueError, TypeError) as error:
        message = f"{where}: the record of an epoch cannot be read: {error}"
        raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what else is damaged") from error


def summed(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Return the sums of two counters by key."""
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}
