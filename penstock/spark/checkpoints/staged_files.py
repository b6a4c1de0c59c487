"""Integrity check of what waits in a checkpoint for a replay: sealed rows, stored answers, and versions of tables.

A run reads those of epochs that are not committed. Others are leftovers, which a run that goes back may need.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping

from penstock.errors import PenstockError
from penstock.spark.checkpoints.spark_files import MISSING
from penstock.spark.epochs.bounds import planned_bounds, read_bounds
from penstock.spark.epochs.result_staging import ResultStaging
from penstock.spark.lowering.job_storage import START_OVER
from penstock.spark.lowering.table_versions import EPOCHS, NEWEST, VERSION
from penstock.spark.tasks.stored_results import parse_answers
from penstock.storage.folders import Folder

_RESULTS = re.compile(r"staged/(?P<query>[^/]+)/outbox/(?P<epoch>\d+)/sealed")
_ANSWERS = re.compile(r"staged/(?P<query>[^/]+)/answers/(?P<epoch>\d+)/[^/]+\.arrow")
_DECISION = re.compile(rf"staged/(?P<query>[^/]+)/tables/[^/]+/{EPOCHS}/(?P<epoch>\d+)")
_VERSION = re.compile(rf"(?P<table>staged/(?P<query>[^/]+)/tables/[^/]+)/(?P<file>{VERSION.pattern})")
_CALLED_AGAIN = "functions would be called again for an epoch that is sealed"


def is_staged(path: str) -> bool:
    """Return whether `damage_in_staged` checks a file."""
    return any(one.fullmatch(path) for one in (_RESULTS, _ANSWERS, _DECISION, _VERSION))


def is_leftover(data: Folder, path: str, committed: Mapping[str, int]) -> bool:
    """Return whether a run that continues after the committed epochs does not read a file."""
    if match := _VERSION.fullmatch(path):
        return match["file"] not in _needed_versions(data / match["table"], committed.get(match["query"], -1))
    found = (one.fullmatch(path) for one in (_RESULTS, _ANSWERS, _DECISION))
    match = next((one for one in found if one), None)
    if match is None:
        return False
    if int(match["epoch"]) <= committed.get(match["query"], -1):
        return True
    # Answers of an attempt that was not complete are deleted; without an outbox each attempt is taken for complete.
    outbox = data / "staged" / match["query"] / "outbox"
    return _ANSWERS.fullmatch(path) is not None and bool(outbox.names()) and not _is_sealed(outbox, match["epoch"])


def damage_in_staged(data: Folder, path: str, content: bytes) -> str | None:
    """Return what is wrong with a file; raises ValueError if it cannot be parsed."""
    if match := _RESULTS.fullmatch(path):
        return _damaged_results(data, match["query"], int(match["epoch"]))
    if match := _VERSION.fullmatch(path):
        same = hashlib.sha256(content).hexdigest()[:16] == match["file"].partition(".")[0]
        return None if same else "does not match its checksum"
    if _ANSWERS.fullmatch(path):
        parse_answers(content)
    elif not VERSION.fullmatch(content.decode()):
        return "cannot be read (it does not name a version of the table)"
    return None


def missing_staged(data: Folder, committed: Mapping[str, int], *, newest_only: bool) -> Iterator[tuple[str, str]]:
    """Yield the missing files that others refer to: answers of sealed epochs, and versions that epochs have seen."""
    for query in (data / "staged").names():
        done, where = committed.get(query, -1), f"staged/{query}"
        yield from _missing_of_sealed(data, query, done)
        for table in (data / where / "tables").names():
            folder = data / where / "tables" / table
            for version in sorted(_needed_versions(folder, done if newest_only else -1)):
                # A running job may have deleted it since, with the file that names it.
                if folder.read(version) is None and version in _needed_versions(folder, done if newest_only else -1):
                    yield f"{where}/tables/{table}/{version}", f"{MISSING}: an epoch has seen this version of the table"


def remedy_for_staged(path: str) -> str | None:
    """Return what a user can do about a damaged file; None for other files."""
    if match := _RESULTS.fullmatch(path) or _ANSWERS.fullmatch(path):
        return (
            "put the file back from a copy; if no sink has rows of the epoch yet, remove "
            f"staged/{match['query']}/outbox/{match['epoch']}, and it is computed again (where a sink has it, the run "
            f"stops); or {START_OVER}"
        )
    if _DECISION.fullmatch(path):
        return f"remove it: the next run finds the version of the table in {NEWEST} beside, if that is not older"
    return None


def _missing_of_sealed(data: Folder, query: str, committed: int) -> Iterator[tuple[str, str]]:
    """Yield what sealed epochs that are not committed need: their offsets, and the answers that their state needs."""
    staged, planned = data / "staged" / query, data / "queries" / query
    results = ResultStaging(staged / "outbox")
    for epoch in (int(name) for name in results.folder.names() if name.isdigit() and int(name) > committed):
        recorded = f"{epoch}.json" in (data / "epochs" / query).names()
        try:
            sealed = results.sealed(epoch)
            if sealed is None and recorded and _is_open(planned, epoch):
                yield f"staged/{query}/outbox/{epoch}/sealed", f"{MISSING}: sinks have the epoch"
            if sealed and planned_bounds(planned, epoch) is None:
                # The rows would be taken for those of the epoch that is planned under this number.
                yield f"queries/{query}/offsets/{epoch}", f"{MISSING}: the epoch is sealed in staged/{query}/outbox"
        except (PenstockError, ValueError):
            continue  # reported by its own name
        for name in {*sealed.answers} - {*(staged / "answers" / str(epoch)).names()} if sealed else ():
            yield f"staged/{query}/answers/{epoch}/{name}", f"{MISSING}: {_CALLED_AGAIN}"


def _is_open(planned: Folder, epoch: int) -> bool:
    """Return whether an epoch is not committed by now, and not one of an earlier plan, which may not have sealed it."""
    return str(epoch) not in (planned / "commits").names() and epoch not in read_bounds(planned)


def _needed_versions(table: Folder, committed: int) -> set[str]:
    """Return the version that was read last, and those that epochs after the committed one have seen."""
    decisions = (table / EPOCHS).names()
    contents = [(table / EPOCHS).read(name) for name in decisions if name.isdigit() and int(name) > committed]
    found = {content.decode(errors="replace") for content in contents if content is not None}
    with contextlib.suppress(ValueError, AttributeError):  # reported by its own name
        found.add(str(json.loads(table.read(NEWEST) or b"{}").get("version")))
    return {name for name in found if VERSION.fullmatch(name)}


def _is_sealed(outbox: Folder, epoch: str) -> bool:
    return "sealed" in (outbox / epoch).names()


def _damaged_results(data: Folder, query: str, epoch: int) -> str | None:
    results = ResultStaging(data / "staged" / query / "outbox")
    try:
        sealed = results.sealed(epoch)
        for share in sealed.partitions if sealed else ():
            for _ in results.batches(share):
                pass
    except PenstockError as error:
        return f"cannot be used ({error.message})"
    return None
