"""Integrity check of Penstock's own files in a checkpoint: damaged files, and files that are missing.

Spark's files are checked in `spark_files`. `penstock checkpoints` checks everything; the preflight check of a run only
what that run will read.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.connectors.files.file_log import FileLog
from penstock.connectors.files.stdin import END, SPOOL, stored_lines
from penstock.errors import PenstockError
from penstock.plan.naming import node_name
from penstock.spark.checkpoints.history import History, query_names
from penstock.spark.checkpoints.identity import HIGHEST_EPOCHS, Identity
from penstock.spark.checkpoints.layout import FILE as LAYOUT
from penstock.spark.checkpoints.layout import UNKNOWN, Layout, read_layout
from penstock.spark.checkpoints.lost_epochs import lost_offsets
from penstock.spark.checkpoints.physical_plan import PLAN
from penstock.spark.checkpoints.runs import KEYED, RUN, damage_in_run, missing_beside
from penstock.spark.checkpoints.spark_files import MISSING
from penstock.spark.checkpoints.staged_files import (
    damage_in_staged,
    is_leftover,
    is_staged,
    missing_staged,
    remedy_for_staged,
)
from penstock.spark.checkpoints.state.manifests import runs_named
from penstock.spark.epochs.journal_compaction import entries_read
from penstock.spark.lowering.job_storage import START_OVER
from penstock.spark.tasks.control_journal import TIMERS, ControlJournal, DeclaredTimes
from penstock.spark.tasks.control_journal import TIMES_JOURNAL as TICKS
from penstock.spark.tasks.offset_files import parse_planned, replayed_ends
from penstock.spark.tasks.timer_source import fired_timers
from penstock.spark.tasks.totals import Totals
from penstock.storage.file_names import file_name, source_folder
from penstock.storage.folders import Folder

REWRITTEN = "remove it: the next run writes it again"
Problems = dict[str, str]
# Every run overwrites these.
_TRANSIENT = re.compile(
    rf"{LAYOUT}|{PLAN}|parted-[^/]+\.json|sources/[^/]+/((offsets|(pace|planned)-[^/]+)\.json|read)"
)
RECORD = re.compile(r"epochs/(?P<query>[^/]+)/(?P<epoch>\d+)\.json")
_JOURNAL = re.compile(r"(?P<name>.+?)(/(base-)?\d{9,})?\.jsonl")
_NOT_CHECKED = ("queries/", "set-aside/", "generations/", "lease", ".", "suspect", "current", "counted")


def is_rewritten_by_every_run(path: str) -> bool:
    """Return whether every run writes a new version of a file, so that a damaged one can be deleted."""
    return _TRANSIENT.fullmatch(path) is not None


def remedy(path: str) -> str:
    """Return what a user can do about a damaged file of Penstock's own."""
    if is_rewritten_by_every_run(path):
        return REWRITTEN
    return remedy_for_staged(path) or f"put the file back from a copy, or {START_OVER}"


@dataclass(frozen=True)
class CheckpointFiles:
    """The data of a checkpoint, and what determines which files it must have."""

    data: Folder
    identity: Identity
    layout: Layout
    histories: Mapping[str, History]
    migrated: bool

    @property
    def has_epochs(self) -> bool:
        """Whether Penstock runs its epochs; in real-time and Kafka connector runs Spark does."""
        return self.data.read("pace") not in (b"connected", b"realtime")

    @property
    def newest_committed(self) -> dict[str, int]:
        """The newest committed epoch of each query that has one."""
        return {name: max(one.committed) for name, one in self.histories.items() if one.committed}

    def relisted(self) -> CheckpointFiles:
        """Return the same with the files of its queries as they are now."""
        now = {name: History(one.folder, one.operators) for name, one in self.histories.items()}
        return replace(self, histories=now)

    def offsets(self, query: str, epoch: int) -> dict[str, Any]:
        """Return the end offset of each source in an epoch; empty if it is unknown."""
        try:
            return self.layout.queries.get(query, UNKNOWN).by_source(self.histories[query].offsets(epoch))
        except (PenstockError, ValueError, FileNotFoundError):
            return {}


def find_damage(files: CheckpointFiles, *, newest_only: bool = False) -> Problems:
    """Return the damaged files and what is wrong; `newest_only` leaves out files that only earlier epochs need."""
    found, paths = dict(_missing(files)) | lost_epochs(files), list(_paths(files.data))
    found |= dict(missing_staged(files.data, files.newest_committed, newest_only=newest_only))
    for path in paths:
        if newest_only and _is_superseded(files, path):
            continue
        if path not in found and (reason := _damage(files, path)):
            found[path] = reason
    found |= missing_runs(files) if not newest_only else {}
    for name in sorted({match["name"] for path in paths if (match := _JOURNAL.fullmatch(path))}):
        found |= _damaged_journal(files, name)
    return found | _lost_input(files)


def damaged_runs(files: CheckpointFiles) -> Problems:
    """Return the runs of keyed state that are damaged or missing."""
    paths = [f"{KEYED}/{path}" for path in (files.data / KEYED).files()]
    damaged = {path: reason for path in paths if RUN.fullmatch(path) and (reason := _damage(files, path))}
    return damaged | missing_runs(files)


def missing_runs(files: CheckpointFiles) -> Problems:
    """Return the missing runs of keyed state: those that the state after the newest committed epochs names."""
    found = _missing_runs(files)
    now = files.relisted() if found else files
    # A running job deletes runs that its later epochs do not need.
    return found if now.newest_committed == files.newest_committed else _missing_runs(now)


def _missing_runs(files: CheckpointFiles) -> Problems:
    there = {f"{KEYED}/{path}" for path in (files.data / KEYED).files()}
    found = dict(missing_beside(there, files.data.read, files.newest_committed))
    for query, epoch in files.newest_committed.items():
        history = files.histories[query]
        for number, operator in enumerate(files.layout.queries.get(query, UNKNOWN).operators):
            where = f"{KEYED}/{query}/{file_name(operator.node)}"
            named = {f"{where}/{name}" for name in runs_named(history, number, epoch) or ()}
            found |= dict.fromkeys(sorted(named - there), f"{MISSING}, and the state after epoch {epoch} needs it")
    return found


def lost_epochs(files: CheckpointFiles) -> Problems:
    """Return the offsets that are missing after the newest epoch that Spark knows: it would start that epoch over."""
    if not files.has_epochs:
        return {}
    queries = {*files.histories, *files.layout.queries}
    if not files.migrated:
        # A migrated checkpoint has records of queries of earlier plans.
        queries |= {*(files.data / "epochs").names(), *(files.data / "staged").names()}
    return {path: why for query in sorted(queries) for path, why in lost_offsets(files.data, query)}


def _is_superseded(files: CheckpointFiles, path: str) -> bool:
    """Return whether a run that continues after the newest committed epochs does not read a file."""
    if match := RECORD.fullmatch(path):
        return int(match["epoch"]) < files.newest_committed.get(match["query"], -1)
    # Tasks check the runs that they read.
    return RUN.fullmatch(path) is not None or is_leftover(files.data, path, files.newest_committed)


def _paths(data: Folder) -> Iterator[str]:
    for name in data.names():
        if name.startswith(_NOT_CHECKED) or name == "queries":
            continue
        below = [path for path in (data / name).files() if not path.rpartition("/")[2].startswith(".")]
        yield from (f"{name}/{path}" for path in below) if below else [name]


def _damage(files: CheckpointFiles, path: str) -> str | None:
    parse = next((parse for pattern, parse in _PARSERS.items() if re.fullmatch(pattern, path)), None)
    if parse is None and not RUN.fullmatch(path) and not is_staged(path):
        return None
    content = files.data.read(path)
    if content is None:
        return None  # a running job has deleted it since it was listed
    try:
        if parse is not None:
            parse(content)
            return None
        return damage_in_run(content) if RUN.fullmatch(path) else damage_in_staged(files.data, path, content)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, PenstockError) as error:
        return f"cannot be read ({type(error).__name__})"


def _json(kind: type) -> Callable[[bytes], None]:
    def parse(content: bytes) -> None:
        if not isinstance(json.loads(content), kind):
            message = f"not a {kind.__name__}"
            raise TypeError(message)

    return parse


def _one_of(*names: str) -> Callable[[bytes], None]:
    def parse(content: bytes) -> None:
        if content.decode() not in names:
            message = f"not one of {names}"
            raise ValueError(message)

    return parse


_PARSERS: dict[str, Callable[[bytes], Any]] = {
    r"pace": _one_of("epochs", "connected", "realtime"),
    PLAN: _json(dict),
    r"sources/[^/]+/pace-[^/]+\.json": _json(list),
    r"sources/[^/]+/planned-[^/]+\.json": parse_planned,
    r"parted-[^/]+\.json|staged/[^/]+/tables/[^/]+/newest\.json": _json(dict),
    rf"{HIGHEST_EPOCHS}|rings-[^/]+\.json|sources/[^/]+/(offsets|start)\.json": _json(dict),
    RECORD.pattern: lambda content: Totals(**json.loads(content)),
    r"sources/[^/]+/started": float,
    r"sources/[^/]+/reader": _one_of("penstock", "spark"),
    r"sources/[^/]+/(released|read)|staged/[^/]+/(begun|by-input)": int,
}


def _damaged_journal(files: CheckpointFiles, name: str) -> Problems:
    """Check every line of a journal, and that it is at least as long as the newest epoch has read."""
    folder, _, last = name.rpartition("/")
    path = f"{name}.jsonl" if files.data.local else name
    try:
        if last == "files":
            end = FileLog(files.data / folder).end
        elif name == TICKS:
            ticks = DeclaredTimes(files.data)
            end = ticks.end()
            ticks.times(ticks.first, end)
        elif name == TIMERS:
            wakeups = ControlJournal(files.data, TIMERS)
            end = wakeups.end()
            for line in wakeups.between(wakeups.first, end):
                fired_timers(line, wakeups.where)
        else:
            return {}
    except (ValueError, TypeError, KeyError, PenstockError) as error:
        reason = error.message if isinstance(error, PenstockError) else type(error).__name__
        return {path: f"cannot be read ({reason})"}
    needed = _position_read(files, folder.removeprefix("sources/") if last == "files" else None, name)
    return {path: _too_short(end, needed)} if needed > end else {}


def _lost_input(files: CheckpointFiles) -> Problems:
    """Check that copies of standard input are at least as long as the newest epoch has read."""
    found: Problems = {}
    for name, kind, where in _sources(files):
        if kind == "StdinSource" and (needed := _position_read(files, name, "")):
            lines, size = stored_lines(files.data / where)
            if size < needed:
                found[f"{where}/{SPOOL}"] = _too_short(size, needed) if size else MISSING
            elif lines < needed:
                # The next run would cut off a last line without a line feed, though it was read.
                found[f"{where}/{END}"] = f"{MISSING}, and the newest epoch has read the line that it ends"
    return found


def _too_short(end: int, needed: int) -> str:
    return f"ends at {end}, and the newest epoch has read up to {needed}"


def _sources(files: CheckpointFiles) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the kind and the folder of each source."""
    for id, node in files.identity.plan.items():
        name = node_name(node["kind"], id)
        yield name, str(node["does"]).split(" ")[0], f"sources/{source_folder(name)}"


def _position_read(files: CheckpointFiles, source: str | None, name: str) -> int:
    """Return the position up to which the newest planned epoch of any query has read a journal."""
    reached = 0
    for query, history in files.histories.items():
        for name_read, offset in _newest_offsets(files, query, history):
            if source is None:
                reached = max(reached, entries_read(name, name_read, offset))
            elif name_read == source and isinstance(offset, dict):
                reached = max(reached, int(offset.get("0", 0)))
    return reached


def _newest_offsets(files: CheckpointFiles, query: str, history: History) -> Iterator[tuple[str, Any]]:
    """Yield the sources and offsets of the newest epoch, and of those that have to be planned again after a repair."""
    yield from files.offsets(query, max(history.logged, default=-1)).items()
    with contextlib.suppress(ValueError):  # reported by the check of Spark's files
        for name, ends in replayed_ends(history.folder).items():
            yield from ((name, end) for end in ends.values())


def _missing(files: CheckpointFiles) -> Iterator[tuple[str, str]]:
    """Yield files that every run writes, and that are missing."""
    data, done = files.data, files.newest_committed
    if not done or not files.has_epochs:
        return
    present = set(data.names())
    names = {LAYOUT, "pace", *(f"parted-{query}.json" for query in done), *([HIGHEST_EPOCHS] if files.migrated else [])}
    names |= {f"rings-{query}.json" for query in done if TIMERS in files.layout.queries.get(query, UNKNOWN).sources}
    yield from ((name, MISSING) for name in sorted(names - present))
    for name in (TICKS, TIMERS):
        if not {name, f"{name}.jsonl"} & present and _position_read(files, None, name):
            yield f"{name}.jsonl" if data.local else name, MISSING
    for query in done:
        yield from ((f"epochs/{query}/{epoch}.json", MISSING) for epoch in missing_records(files, query))
    yield from _missing_source_files(files)


def _missing_source_files(files: CheckpointFiles) -> Iterator[tuple[str, str]]:
    """Yield the missing ones of the files that a source of this kind always writes."""
    for name, kind, where in _sources(files):
        folder = files.data / where
        if (
            kind == "FileSource"
            and _position_read(files, name, "")
            and not {"files", "files.jsonl"} & {*folder.names()}
        ):
            yield f"{where}/files" + (".jsonl" if files.data.local else ""), MISSING
        if kind == "TopicSource" and folder.read("reader") != b"spark":
            yield from ((f"{where}/{one}", MISSING) for one in ("reader", "start.json") if folder.read(one) is None)


def missing_records(files: CheckpointFiles, query: str) -> list[int]:
    """Return the committed epochs of a query whose records are missing.

    Epochs that Penstock did not run have none: the last one before a migration, and the one in which Spark changes the
    number of partitions.
    """
    history, folder = files.histories[query], files.data / "epochs" / query
    numbers = {int(name.removesuffix(".json")) for name in folder.names() if re.fullmatch(r"\d+\.json", name)}
    if files.migrated and (len(history.committed) == 1 or history.repartitioned):
        return []
    oldest = 0 if not files.migrated and 0 in history.committed else min(numbers, default=max(history.committed))
    return [epoch for epoch in history.committed if epoch >= oldest and epoch not in numbers]


def checkpoint_files(data: Folder, identity: Identity, *, migrated: bool) -> CheckpointFiles:
    """List the data of a checkpoint."""
    layout = read_layout(data)
    histories = {name: History(data / "queries" / name, layout.operators(name)) for name in query_names(data)}
    return CheckpointFiles(data, identity, layout, histories, migrated)
