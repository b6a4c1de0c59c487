"""What the next run does about damage in a checkpoint: it repairs it, does not read it, or stops.

Computed by the functions by which the preflight check of a run decides, without a change to any file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.integrity import CheckpointFiles, Problems, find_damage, remedy
from penstock.spark.checkpoints.preflight import METADATA, epoch_of_lost_record, find_unrepairable, is_overwritten
from penstock.spark.checkpoints.repair import FULL_CHECK, Repair, plan_repair
from penstock.spark.checkpoints.runs import RUN
from penstock.spark.lowering.job_storage import START_OVER
from penstock.storage.folders import Folder

_NOT_READ = "the next run does not read {}; a run that goes back to an earlier epoch does"
_NEW_ID = "the next run gives the query a new id"
# What every start checks is bounded, and a run whose Spark failed requests a check of all files.
_FAILS = "the next run fails if Spark reads it, and the one after that"


class Outlook:
    """What the next run of a job does, by the files of its checkpoint."""

    def __init__(self, root: Folder, files: CheckpointFiles) -> None:
        self.root, self.files = root, files

    def of_files(self, damaged: Problems) -> dict[str, str]:
        """Return what the next run does about each damaged file of Penstock's own, by its path."""
        return {path: self._of_file(path, reason) for path, reason in damaged.items()}

    def of_query(self, query: str, damaged: Problems) -> str:
        """Return what the next run does about damaged files of Spark's in a query."""
        if not self.files.has_epochs:
            return f"the next run stops if Spark reads them; {START_OVER}"
        for error in (*self._stops.values(), *self._repairs.values()):
            if isinstance(error, CheckpointDamaged):
                return f"the next run stops: {error.message}\n  {error.hint}"
        does = "the next run" if self._repairs[query] else _FAILS
        match self._repairs[query] or self._repair(query, full_check=True):
            case Repair() as repair:
                return f"{does} repairs it: {_said_of(repair)}"
            case CheckpointDamaged() as error:
                return f"{does} stops: {error.message}\n  {error.hint}"
        return _left(damaged, self.files.histories[query])

    def _of_file(self, path: str, reason: str) -> str:
        if path in self._stops:
            return f"the next run stops; {self._stops[path].hint}"
        if RUN.fullmatch(path):
            return f"a run stops when it reads it; {remedy(path)}"
        if path not in self._read:
            return _NOT_READ.format("it")
        if is_overwritten(self._repaired, path, reason):
            return "the next run writes it again"
        if found := epoch_of_lost_record(self._repaired, path):
            return f"the next run repairs it: epoch {found[1]} will run again with the same offsets"
        return f"the next run stops; {remedy(path)}"

    @cached_property
    def _stops(self) -> dict[str, CheckpointDamaged]:
        """The files that stop every run before it repairs anything, with its error."""
        return dict(find_unrepairable(self.root, self.files.data)) if self.files.has_epochs else {}

    @cached_property
    def _checks_all(self) -> bool:
        return self.files.data.read(FULL_CHECK) is not None

    @cached_property
    def _repairs(self) -> dict[str, Repair | CheckpointDamaged | None]:
        """What the next run does to Spark's files of each query: a repair, an error, or nothing."""
        queries = self.files.histories if self.files.has_epochs and not self._stops else ()
        return {query: self._repair(query, full_check=self._checks_all) for query in queries}

    def _repair(self, query: str, *, full_check: bool) -> Repair | CheckpointDamaged | None:
        try:
            layout = self.files.layout
            history = History(self.files.data / "queries" / query, layout.operators(query))
            repair = plan_repair(self.files.data, query, history, layout, full_check=full_check)
            if repair:
                repair.reruns_unsealed()  # it raises if a seal is damaged
        except CheckpointDamaged as error:
            return error
        return repair

    @cached_property
    def _repaired(self) -> CheckpointFiles:
        """The checkpoint as the repair of Spark's files leaves it: Penstock's own files are judged by that."""
        left = {query: repair.remaining() for query, repair in self._repairs.items() if isinstance(repair, Repair)}
        return replace(self.files, histories={**self.files.histories, **left})

    @cached_property
    def _read(self) -> Problems:
        """The damaged ones of the files that the next run reads."""
        return find_damage(self._repaired, newest_only=True)


def _said_of(repair: Repair) -> str:
    unless = " or ".join(_what_prevents(repair))
    return repair.consequence + (f"; it stops instead if {unless}" if unless else "")


def _what_prevents(repair: Repair) -> Iterator[str]:
    """Yield what in the pipeline makes a repair impossible."""
    if repair.rolls_back:
        yield "the pipeline has changed"
    if repair.reads_sources_again:
        yield "a source cannot be read again"
    if repair.ends:
        yield "a window uses processing time"
    if repair.reruns_unsealed():
        yield "a function that is not deterministic is upstream of a sink"


def _left(damaged: Problems, history: History) -> str:
    again = {*history.unfinished_state}
    others = damaged.keys() - {METADATA} - again
    said = [
        *([_NEW_ID] if METADATA in damaged else []),
        *(["the next run writes the state of its first epoch again"] if again & damaged.keys() else []),
        *([_NOT_READ.format("the others" if len(damaged) > len(others) else "them")] if others else []),
    ]
    return "; ".join(said)
