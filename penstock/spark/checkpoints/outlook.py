"""What the next run does about damage in a checkpoint: it repairs it, does not read it, or stops.

Computed by the functions by which the preflight check of a run decides, without a change to any file.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints.integrity import CheckpointFiles, Problems, find_damage, remedy
from penstock.spark.checkpoints.preflight import epoch_of_lost_record, is_overwritten
from penstock.spark.checkpoints.repair import Repair, plan_repair
from penstock.spark.checkpoints.runs import RUN
from penstock.spark.lowering.job_storage import START_OVER

_NOT_READ = "the next run does not read {}; a run that goes back to an earlier epoch does"


def outlook(files: CheckpointFiles, damaged: Problems) -> dict[str, str]:
    """Return what the next run does about each damaged file of Penstock's own, by its path."""
    if not damaged:
        return {}
    read = find_damage(files, newest_only=True)
    return {path: _outlook(files, path, reason, read=path in read) for path, reason in damaged.items()}


def outlook_for_query(files: CheckpointFiles, query: str) -> str:
    """Return what the next run does about damaged files of Spark's in a query."""
    if not files.has_epochs:
        return f"the next run stops if Spark reads them; {START_OVER}"
    try:
        repair = plan_repair(files.data, query, files.layout, full_check=True)
    except CheckpointDamaged as error:
        return f"the next run stops: {error.message}\n  {error.hint}"
    if repair is None:
        return _NOT_READ.format("them")
    unless = " or ".join(_what_prevents(repair))
    return f"the next run repairs it: {repair.consequence}" + (f"; it stops instead if {unless}" if unless else "")


def _outlook(files: CheckpointFiles, path: str, reason: str, *, read: bool) -> str:
    if RUN.fullmatch(path):
        return f"a run stops when it reads it; {remedy(path)}"
    if not read:
        return _NOT_READ.format("it")
    if is_overwritten(files, path, reason):
        return "the next run writes it again"
    if found := epoch_of_lost_record(files, path):
        return f"the next run repairs it: epoch {found[1]} will run again with the same offsets"
    return f"the next run stops; {remedy(path)}"


def _what_prevents(repair: Repair) -> Iterator[str]:
    """Yield what in the pipeline makes a repair impossible."""
    if repair.reads_sources_again:
        yield "a source cannot be read again"
    if repair.ends:
        yield "a window uses processing time"
    if repair.reruns_unsealed():
        yield "a function that is not deterministic is upstream of a sink"
