"""What a run does about damaged files before Spark meets them: it goes back to the newest state that is whole.

Spark alone replays only the last epoch that it planned. To go back further, files of later epochs are set aside, and
the bounds that they had are noted for our scans: the epochs are planned again as they were, under the same numbers, so
that they equal those that the ledgers of sinks have and skip. Nothing is deleted.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

from penstock.errors import CheckpointDamaged
from penstock.folders import Folder
from penstock.spark.checkpoints.checkpoint import ANEW
from penstock.spark.checkpoints.copying import needed, query_names
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.inspect import is_whole
from penstock.spark.checkpoints.integrity import operators_of
from penstock.spark.checkpoints.layout import UNKNOWN, QueryLayout, read_layout
from penstock.spark.checkpoints.wholeness import broken
from penstock.spark.epochs.notes import REPLAY, noted_end, replayed_ends

# Up to this size all files that Spark will load are checked at every start; of more, the newest.
QUICKLY_CHECKED = 64 * 2**20
SUSPECT = "suspect"
_VERSION = re.compile(r"state/.+/(\d+)(_[^./]+)?\.(delta|snapshot|changelog|zip)")
_log = logging.getLogger(__name__)


def mend(data: Folder, *, replayable: bool, changes: bool = False, by_clock: bool = False) -> None:
    """Look for damage in what Spark will read, and mend it; what is done is said in a line for each query.

    Epochs that have to run again must do so in the plan that they ran in, so they stand in the way of one that changes;
    of one that goes `by_clock`, only an epoch can whose time Spark still knows.
    """
    thorough, layout = data.read(SUSPECT) is not None, read_layout(data)
    for name in query_names(data):
        history = History(data / "queries" / name, operators_of(layout, name))
        if history.last >= 0 and (found := _first_damage(history, thorough=thorough)):
            repair = _Repair(data, name, history, layout.queries.get(name, UNKNOWN), found)
            if not replayable and repair.epoch < history.last - 1:
                repair.refuse("its source cannot be read again")
            if by_clock and repair.ends:
                repair.refuse("windows go by the clock, but when the epochs ran that have to run again is lost")
            _log.warning(repair.done())
        if changes and any(epoch > max(_done(history)) for ends in _replayed(data, name) for epoch in ends):
            message = f"checkpoint {data} was damaged, and the epochs that it lost have not run again yet"
            raise CheckpointDamaged(message, hint="run the old version of the pipeline until they have, then this one")
    if thorough:
        data.remove(SUSPECT)


def suspect(data: Folder) -> None:
    """Have the next run check every file: Spark failed, and a damaged file may be why."""
    data.write(SUSPECT, b"Spark failed")


def _replayed(data: Folder, name: str) -> Iterable[dict[int, Any]]:
    return replayed_ends(data / "queries" / name).values()


def _done(history: History) -> list[int]:
    return history.committed or [-1]


def _first_damage(history: History, *, thorough: bool) -> tuple[str, str] | None:
    """Return the first damaged file among those that Spark will read, and what is wrong with it."""
    last, done = history.last, max(history.committed, default=-1)
    if history.missing:
        return history.missing[0], "is gone"
    if done not in (last, last - 1):
        return f"commits/{last - 1}", "is gone"
    try:
        names = [*needed(history, done), f"offsets/{last}"]
        for name in names if thorough else _checked(history, names):
            if reason := broken(history, name):
                return name, reason
    except CheckpointDamaged as error:
        return f"the state after epoch {done}", f"is not whole ({error.message})"
    except (FileNotFoundError, ValueError, KeyError) as error:
        return f"the state after epoch {done}", f"cannot be read ({error})"
    return None


def _checked(history: History, names: list[str]) -> list[str]:
    """Return the files that are worth a look at every start."""
    if history.folder.local is None:
        return [name for name in names if not name.startswith("state/")]
    if sum(history.files.get(name, 0) for name in names) <= QUICKLY_CHECKED:
        return names
    newest = max((_version(name) for name in names), default=0)
    return [name for name in names if not name.startswith("state/") or _version(name) == newest]


class _Repair:
    """One query on its way back: to `epoch`, the newest whose state is whole and after which all bounds are known."""

    def __init__(self, data: Folder, name: str, history: History, layout: QueryLayout, found: tuple[str, str]) -> None:
        self.data, self.name, self.history, self.layout, self.found = data, name, history, layout, found
        self.damaged = {file: reason for file in history.files if (reason := broken(history, file))}
        self.last = history.last
        self.epoch = self._epoch()
        self.ends = self._ends()

    def done(self) -> str:
        """Note the bounds of later epochs, then set aside what stands in the way."""
        if self.ends:
            known = replayed_ends(self.history.folder)
            merged = {source: {**known.get(source, {}), **ends} for source, ends in self.ends.items()}
            self.history.folder.write(REPLAY, json.dumps(merged).encode())
        aside = f"set-aside/{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        names = [*self._in_the_way()]
        moved = self.history.with_checksums(names)
        self.history.folder.copy(moved, self.data / aside / "queries" / self.name)
        for name in moved:
            self.history.folder.remove(name)
        file, reason = self.found
        return f"checkpoint {self.data}: {self.name}/{file} {reason}; {self._what()}; {_files(len(names))} in {aside}"

    def refuse(self, why: str) -> NoReturn:
        """Raise the error of a damage that cannot be mended."""
        file, reason = self.found
        message = f"{self.history.folder}/{file} {reason}, and {why}"
        raise CheckpointDamaged(message, hint=ANEW)

    def _what(self) -> str:
        if self.epoch == self.last:
            return "older files hold the same state, so nothing is repeated"
        first = f"epoch {self.epoch + 1}" if self.epoch + 1 == self.last else f"epochs {self.epoch + 1} to {self.last}"
        return f"{first} will run again with the same bounds, from the state after epoch {self.epoch}"

    def _epoch(self) -> int:
        done = max(self.history.committed, default=-1)
        for epoch in range(min(done, self.last), -1, -1):
            # Spark asks for the bounds of the newest epoch that it finds, and of the one before.
            before = [f"offsets/{epoch - 1}"] if epoch == self.last and epoch else []
            if any(self._lacks(name) for name in (f"commits/{epoch}", f"offsets/{epoch}", *before)):
                continue
            if all(is_whole(store, epoch, self.damaged) for store in self.history.stores):
                return epoch
        if 0 not in self.history.logged:
            self.refuse("no epoch that is kept has all of its state")
        return -1

    def _ends(self) -> dict[str, dict[int, Any]]:
        """Return up to where each source was read by the epochs that run again, as far as Spark does not know it."""
        ends: dict[str, dict[int, Any]] = {}
        for epoch in range(self.epoch + 1, self.last + 1):
            if epoch == self.epoch + 1 and not self._lacks(f"offsets/{epoch}"):
                continue
            for source, end in self._bounds(epoch).items():
                ends.setdefault(source, {})[epoch] = end
        return ends

    def _bounds(self, epoch: int) -> dict[str, Any]:
        sources = self.layout.sources
        if not sources:
            self.refuse("no run has noted which offsets are whose")
        if "kafka" in sources:
            self.refuse("Spark's connector for Kafka cannot read epochs again as they were")
        name = f"offsets/{epoch}"
        if not self._lacks(name):
            return dict(zip(sources, self.history.offsets(epoch), strict=True))
        if epoch != self.last or self.data.local is None or (epoch and self._lacks(f"offsets/{epoch - 1}")):
            self.refuse(f"{name} with the bounds of epoch {epoch} is lost")
        # Sources note the newest epoch's bounds as well; one without a note had nothing new.
        old = dict(zip(sources, self.history.offsets(epoch - 1), strict=True)) if epoch else {}
        noted = {one: noted_end(self.data / "sources" / one, self.name, epoch) or old.get(one) for one in sources}
        return {source: end for source, end in noted.items() if end is not None}

    def _lacks(self, name: str) -> bool:
        """Say whether a file is gone or damaged."""
        return name in self.damaged or name not in self.history.files

    def _in_the_way(self) -> Iterable[str]:
        """Yield the files to set aside: commits first, bounds last, so that a crash in between loses none."""
        later = {
            "commits": [f"commits/{epoch}" for epoch in self.history.committed if epoch > self.epoch],
            "offsets": [f"offsets/{epoch}" for epoch in reversed(self.history.logged) if epoch > self.epoch + 1],
        }
        state = [name for name in self.history.files if _version(name) > self.epoch + 1]
        rest = [name for name in self.damaged if name in self.history.files]
        return dict.fromkeys([*later["commits"], *state, *rest, *later["offsets"]])


def _version(name: str) -> int:
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else -1


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"
