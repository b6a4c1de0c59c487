"""What the next run does about damage in a checkpoint: it repairs it, does not read it, or stops.

Computed by the functions by which the preflight check of a run decides, without a change to any file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints.integrity import CheckpointFiles, Problems, find_damage, remedy
from penstock.spark.checkpoints.preflight import METADATA, epoch_of_lost_record, is_overwritten
from penstock.spark.checkpoints.repair import FULL_CHECK, Repair, plan_repair
from penstock.spark.checkpoints.runs import RUN
from penstock.spark.lowering.job_storage import START_OVER

Stops = Mapping[str, CheckpointDamaged]
"""The files that stop every run before it repairs anything, with its error."""
_NOT_READ = "the next run does not read {}; a run that goes back to an earlier epoch does"
_REPAIRS = "the next run repairs it"
# What every start checks is bounded, and a run whose Spark failed requests a check of all files.
_REPAIRS_LATER = "the next run fails if Spark reads it, and the one after that repairs it"


def outlook(files: CheckpointFiles, damaged: Problems, stops: Stops) -> dict[str, str]:
    """Return what the next run does about each damaged file of Penstock's own, by its path."""
    if not damaged:
        return {}
    read = find_damage(files, newest_only=True)
    return {
        path: f"the next run stops; {stops[path].hint}"
        if path in stops
        else _outlook(files, path, reason, read=path in read)
        for path, reason in damaged.items()
    }


def outlook_for_query(files: CheckpointFiles, query: str, damaged: Problems, stops: Stops) -> str:
    """Return what the next run does about damaged files of Spark's in a query."""
    if not files.has_epochs:
        return f"the next run stops if Spark reads them; {START_OVER}"
    try:
        for error in stops.values():
            raise error
        return _repaired(files, query) or _left(damaged)
    except CheckpointDamaged as error:
        return f"the next run stops: {error.message}\n  {error.hint}"


def _repaired(files: CheckpointFiles, query: str) -> str | None:
    """Return which run repairs a query, and how; None if none does. Raises what that run raises."""
    requested = files.data.read(FULL_CHECK) is not None
    for full_check, which in ((requested, _REPAIRS), (True, _REPAIRS_LATER)):
        if repair := plan_repair(files.data, query, files.layout, full_check=full_check):
            unless = " or ".join(_what_prevents(repair))
            return f"{which}: {repair.consequence}" + (f"; it stops instead if {unless}" if unless else "")
    return None


def _left(damaged: Problems) -> str:
    return "the next run gives the query a new id" if set(damaged) == {METADATA} else _NOT_READ.format("them")


def _outlook(files: CheckpointFiles, path: str, reason: str, *, read: bool) -> str:
    if RUN.fullmatch(path):
        return f"a run stops when it reads it; {remedy(path)}"
    if not read:
        return _NOT_READ.format("it")
    if is_overwritten(files, path, reason):
        return "the next run writes it again"
    if found := epoch_of_lost_record(files, path):
        return f"{_REPAIRS}: epoch {found[1]} will run again with the same offsets"
    return f"the next run stops; {remedy(path)}"


def _what_prevents(repair: Repair) -> Iterator[str]:
    """Yield what in the pipeline makes a repair impossible."""
    if repair.reads_sources_again:
        yield "a source cannot be read again"
    if repair.ends:
        yield "a window uses processing time"
    if repair.reruns_unsealed():
        yield "a function that is not deterministic is upstream of a sink"
