"""Repair of Spark's files before a run: it rolls a query back to the newest epoch with intact state.

Spark itself replays only the last epoch that it planned. To roll back further, files of later epochs are moved to
`set-aside/`, and their offsets are stored for our scans: the epochs are planned again with the same numbers and the
same rows, so that sinks recognise them in their ledgers and skip them. Nothing is deleted but the state that an epoch
wrote which was not committed: it runs again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

from penstock.errors import CheckpointDamaged
from penstock.plan.naming import node_id
from penstock.spark.checkpoints.history import History, committed_epochs, query_names
from penstock.spark.checkpoints.layout import UNKNOWN, Layout, QueryLayout, read_layout
from penstock.spark.checkpoints.spark_files import MISSING, damage_in, is_restorable
from penstock.spark.epochs.result_staging import ResultStaging
from penstock.spark.lowering.job_storage import START_OVER
from penstock.spark.tasks.offset_files import REPLAY, planned_end, replayed_ends
from penstock.spark.tasks.totals import TotalsLog
from penstock.storage.file_names import source_folder
from penstock.storage.folders import Folder

# Up to this size every start checks all files that Spark will load; beyond it only those of the newest version.
FULL_CHECK_BYTES = 64 * 2**20
FULL_CHECK = "suspect"
# Where damage is, if no file of its own is damaged.
_STATE_AFTER = "the state after epoch"
_VERSION = re.compile(r"state/.+/(\d+)(_[^./]+)?\.(delta|snapshot|changelog|zip)")
_log = logging.getLogger(__name__)


def repair(
    data: Folder,
    *,
    replayable: bool,
    processing_time: bool = False,
    sealed_for: Collection[str] = (),
    changed: bool = False,
) -> None:
    """Find damage in the files that Spark will read, and repair it; logs a warning for each repaired query.

    With processing time (`processing_time`) only an epoch can run again whose time Spark still has; in a query with a
    sink in `sealed_for`, which gets rows of functions that are not deterministic, only one that is sealed. A `changed`
    plan does not know all that of the epochs of the old one, so where several have to run again it is refused.
    """
    full_check, layout = data.read(FULL_CHECK) is not None, read_layout(data)
    for name in query_names(data):
        history = History(data / "queries" / name, layout.operators(name))
        if plan := plan_repair(data, name, history, layout, full_check=full_check):
            if changed and plan.rolls_back:
                raise _needs_old_version(data, "is damaged", "that have to be rolled back")
            if not replayable and plan.reads_sources_again:
                plan.refuse("its source cannot be read again")
            if processing_time and plan.ends:
                plan.refuse("windows use processing time, and the times of the epochs that have to run again are lost")
            if not {*sealed_for}.isdisjoint(plan.layout.sinks) and plan.reruns_unsealed():
                plan.refuse("functions that are not deterministic gave answers in these epochs that are deleted by now")
            _log.warning(plan.apply())
        else:
            _forget_replayed(history.folder)
            _remove_unfinished_state(history)
    if full_check:
        data.remove(FULL_CHECK)


def plan_repair(data: Folder, name: str, history: History, layout: Layout, *, full_check: bool) -> Repair | None:
    """Return the repair of a query; None if what Spark will read is intact; raises if it cannot be repaired."""
    found = _first_damage(history, full_check=full_check) if history.last >= 0 else None
    return Repair(data, name, history, layout.queries.get(name, UNKNOWN), found) if found else None


def refuse_epochs_to_rerun(data: Folder) -> None:
    """Raise if epochs that a repair has rolled back have not run again yet: they need the plan that they ran with."""
    for name in query_names(data):
        if _has_epochs_to_rerun(data / "queries" / name):
            raise _needs_old_version(data, "was damaged", "that were rolled back")


def _needs_old_version(data: Folder, damaged: str, which: str) -> CheckpointDamaged:
    message = f"checkpoint {data} {damaged}, and the epochs {which} have not run again yet"
    return CheckpointDamaged(message, hint="run the old version of the pipeline until they have, then this one")


def request_full_check(data: Folder) -> None:
    """Make the next run check every file: Spark failed, and a damaged file may be the cause."""
    data.write(FULL_CHECK, b"Spark failed")


def _has_epochs_to_rerun(query: Folder) -> bool:
    epochs = [epoch for ends in replayed_ends(query).values() for epoch in ends]
    return bool(epochs) and max(epochs) > max(committed_epochs(query), default=-1)


def _forget_replayed(query: Folder) -> None:
    """Delete the offsets of epochs that had to run again once all have: Spark has these offsets then."""
    if query.read(REPLAY) is not None and not _has_epochs_to_rerun(query):
        query.remove(REPLAY)


def _remove_unfinished_state(history: History) -> None:
    """Delete the state of the epoch that runs again: Spark would keep these files instead of those that it writes.

    They may be torn by a power cut, or have other answers of a function that is not deterministic than the epoch gets.
    """
    for name in history.with_checksums(history.unfinished_state):
        history.folder.remove(name)


def _newest_committed(history: History) -> int:
    return max(history.committed, default=-1)


def _first_damage(history: History, *, full_check: bool) -> tuple[str, str] | None:
    """Return the first damaged file among those that Spark will read, and what is wrong with it."""
    last, committed = history.last, _newest_committed(history)
    if history.missing_offsets:
        return history.missing_offsets[0], MISSING
    if committed not in (last, last - 1):
        return f"commits/{last - 1}", MISSING
    try:
        names = [*history.files_to_resume(committed), f"offsets/{last}"]
        for name in names if full_check else _files_to_check(history, names):
            if reason := damage_in(history, name):
                return name, reason
    except CheckpointDamaged as error:
        return f"{_STATE_AFTER} {committed}", f"is damaged ({error.message})"
    except (FileNotFoundError, ValueError, KeyError) as error:
        return f"{_STATE_AFTER} {committed}", f"cannot be read ({error})"
    return None


def _files_to_check(history: History, names: list[str]) -> list[str]:
    """Return the files that every start checks."""
    if history.folder.local is None:
        return [name for name in names if not name.startswith("state/")]
    if sum(history.files.get(name, 0) for name in names) <= FULL_CHECK_BYTES:
        return names
    newest = max((_version(name) for name in names), default=0)
    return [name for name in names if not name.startswith("state/") or _version(name) == newest]


class Repair:
    """The repair of one query: it rolls back to `epoch`, the newest with intact state and known offsets after it.

    `ends` are the offsets, by source and epoch, of those epochs that run again and that Spark has no offsets of.
    """

    def __init__(self, data: Folder, name: str, history: History, layout: QueryLayout, found: tuple[str, str]) -> None:
        self.data, self.name, self.history, self.layout, self.found = data, name, history, layout, found
        self.damaged = {file: reason for file in history.files if (reason := damage_in(history, file))}
        self.last = history.last
        self.epoch = self._epoch()
        self.ends = self._ends()

    def apply(self) -> str:
        """Store the offsets of later epochs, then move their files away; return what was done as one line."""
        if self.ends:
            known = replayed_ends(self.history.folder)
            merged = {source: {**known.get(source, {}), **ends} for source, ends in self.ends.items()}
            self.history.folder.write(REPLAY, json.dumps(merged).encode())
        aside = f"set-aside/{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        names = [*self._files_to_move()]
        moved = self.history.with_checksums(names)
        self.history.folder.copy(moved, self.data / aside / "queries" / self.name)
        for name in moved:
            self.history.folder.remove(name)
        file, reason = self.found
        done = f"{self.consequence}; {_files(len(names))} in {aside}"
        return f"checkpoint {self.data}: {self.name}/{file} {reason}; {done}"

    @property
    def reads_sources_again(self) -> bool:
        """Whether rows of committed epochs are read again."""
        return self.epoch < self.last - 1

    @property
    def rolls_back(self) -> bool:
        """Whether more runs again than an epoch that a run continues anyway, as after a crash."""
        return self.reads_sources_again or bool(self.ends)

    def reruns_unsealed(self) -> bool:
        """Return whether an epoch that was published runs again without its seal: the next one to start deletes it.

        Spark starts an epoch after the one before is committed, also if that commit is lost now.
        """
        outbox = ResultStaging(self.data / "staged" / self.name / "outbox")
        newest = self.last if self.last in self.history.committed else self.last - 1
        again = range(self.epoch + 1, newest + 1)
        return len(again) > 1 or any(outbox.sealed(epoch) is None for epoch in again)

    def remaining(self) -> History:
        """Return the history that the repair leaves."""
        return self.history.without({*self._files_to_move()})

    def refuse(self, why: str) -> NoReturn:
        """Raise the error for damage that cannot be repaired."""
        found, reason = self.found
        separator = ": " if found.startswith(_STATE_AFTER) else "/"
        message = f"{self.history.folder}{separator}{found} {reason}, and {why}"
        raise CheckpointDamaged(message, hint=START_OVER)

    @property
    def consequence(self) -> str:
        """The epochs that will run again."""
        if self.epoch == self.last:
            return "older files have the same state, so no epoch runs again"
        first = f"epoch {self.epoch + 1}" if self.epoch + 1 == self.last else f"epochs {self.epoch + 1} to {self.last}"
        state = f"the state after epoch {self.epoch}" if self.epoch >= 0 else "empty state"
        return f"{first} will run again with the same offsets, from {state}"

    def _epoch(self) -> int:
        for epoch in range(min(_newest_committed(self.history), self.last), -1, -1):
            # Spark reads the offsets of the newest epoch that it finds, and of the one before.
            before = [f"offsets/{epoch - 1}"] if epoch and self._lacks(f"offsets/{epoch + 1}") else []
            if any(self._lacks(name) for name in (f"commits/{epoch}", f"offsets/{epoch}", *before)):
                continue
            if all(is_restorable(store, epoch, self.damaged) for store in self.history.stores):
                return epoch
        if 0 not in self.history.logged:
            self.refuse("no retained epoch has intact state")
        return -1

    def _ends(self) -> dict[str, dict[int, Any]]:
        """Return the end offsets of the epochs that run again, by source, unless Spark still has them."""
        ends: dict[str, dict[int, Any]] = {}
        for epoch in range(self.epoch + 1, self.last + 1):
            if epoch == self.epoch + 1 and not self._lacks(f"offsets/{epoch}"):
                continue
            for source, end in self._offsets(epoch).items():
                ends.setdefault(source, {})[epoch] = end
        return ends

    def _offsets(self, epoch: int) -> dict[str, Any]:
        sources = self.layout.sources
        if not sources:
            self.refuse("the order of its sources was never stored")
        if "kafka" in sources:
            self.refuse("Spark's connector for Kafka cannot read an epoch again with the same offsets")
        name = f"offsets/{epoch}"
        if not self._lacks(name):
            return self._by_source(epoch)
        if epoch != self.last or self.data.local is None or (epoch and self._lacks(f"offsets/{epoch - 1}")):
            self.refuse(f"{name} with the offsets of epoch {epoch} is lost")
        # Sources store the newest epoch's offsets as well, unless it has none of their rows.
        old = self._by_source(epoch - 1) if epoch else {}
        ends = {source: self._planned_end(source, epoch, old.get(source)) for source in sources}
        return {source: end for source, end in ends.items() if end is not None}

    def _by_source(self, epoch: int) -> dict[str, Any]:
        ends = self.history.offsets(epoch)
        if len(ends) != len(self.layout.sources):
            self.refuse(f"offsets/{epoch} has {len(ends)} offsets for {len(self.layout.sources)} sources")
        return dict(zip(self.layout.sources, ends, strict=True))

    def _planned_end(self, source: str, epoch: int, before: Any) -> Any:
        """Return up to where an epoch reads a source, which stores it; `before` if the epoch did not read it."""
        path = f"sources/{source_folder(source)}/planned-{self.name}.json"
        planned, end = planned_end(self.data / "sources" / source_folder(source), self.name)
        if planned == epoch:
            return end
        if planned > epoch:
            self.refuse(f"{path} has the offsets of epoch {planned}: those of epoch {epoch} are lost")
        # Every source is planned in its first epoch; after a restore it may have offsets only.
        if planned < 0 and (before or self._may_have_read(source, epoch)):
            self.refuse(f"{path} with the offsets of epoch {epoch} is lost")
        return before

    def _may_have_read(self, source: str, epoch: int) -> bool:
        """Return whether the epochs so far may have rows of a source: not if their record counts none."""
        try:
            until = TotalsLog(self.data / "epochs" / self.name).at(epoch)
        except CheckpointDamaged:
            return True
        return until is None or until.counts.get(node_id("read", source), {}).get("rows_in", 1) > 0

    def _lacks(self, name: str) -> bool:
        """Return whether a file is missing or damaged."""
        return name in self.damaged or name not in self.history.files

    def _files_to_move(self) -> Iterable[str]:
        """Return the files to set aside: commits first, offsets last, so that a crash in between loses none."""
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
