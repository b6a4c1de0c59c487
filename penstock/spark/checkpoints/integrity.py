"""Integrity check of the files that Penstock itself keeps in a checkpoint, and of what is missing beside them.

Spark's own files are checked by `wholeness`. Both are used by `penstock checkpoints`, which reads everything, and by
the preflight of a run, which reads what that run will read.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connectors.file_log import FileLog
from penstock.errors import PenstockError
from penstock.folders import Folder
from penstock.folders.file_names import source_folder
from penstock.plan.naming import node_name
from penstock.spark.checkpoints.checkpoint import ANEW, Identity
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.layout import FILE as LAYOUT
from penstock.spark.checkpoints.layout import UNKNOWN, Layout, read_layout
from penstock.spark.checkpoints.past import REACHED
from penstock.spark.epochs.clock import JOURNAL as TICKS
from penstock.spark.epochs.clock import Ticks
from penstock.spark.epochs.compaction import seen
from penstock.spark.epochs.declared import WAKEUPS, Declared
from penstock.spark.epochs.outbox import Outbox
from penstock.spark.epochs.records import Totals
from penstock.spark.lowering.wakeups import woken

GONE = "is gone"
WRITTEN_AGAIN = "remove it: the next run writes it again"
Problems = dict[str, str]
# Hints for one run, of which each writes its own.
_PASSING = re.compile(rf"{LAYOUT}|parted-[^/]+\.json|sources/[^/]+/(offsets|(pace|planned)-[^/]+)\.json")
RECORD = re.compile(r"epochs/(?P<query>[^/]+)/(?P<epoch>\d+)\.json")
_JOURNAL = re.compile(r"(?P<name>.+?)(/(base-)?\d{9,})?\.jsonl")
_SEALED = re.compile(r"staged/(?P<query>[^/]+)/outbox/(?P<epoch>\d+)/sealed")
_VERSION = re.compile(r"staged/[^/]+/tables/[^/]+/(?P<hash>[0-9a-f]{16})\.arrow")
_LONG_NAMES = ("queries/", "set-aside/", "generations/", "lease", ".", "suspect", "current", "counted")


def is_passing(path: str) -> bool:
    """Say whether a file is a hint that every run writes for itself."""
    return _PASSING.fullmatch(path) is not None


def way_out(path: str) -> str:
    """Return what a user can do about a damaged file of Penstock's own."""
    if is_passing(path):
        return WRITTEN_AGAIN
    if _SEALED.fullmatch(path):
        return (
            "put the file back from a copy; without it the epoch has to be computed again, and sinks that have a part "
            f"of it keep that part: remove its folder to accept this, or {ANEW}"
        )
    return f"put the file back from a copy, or {ANEW}"


@dataclass(frozen=True)
class Kept:
    """A checkpoint's data, as far as it tells what has to be there."""

    data: Folder
    identity: Identity
    layout: Layout
    histories: Mapping[str, History]
    migrated: bool

    @property
    def in_epochs(self) -> bool:
        """Whether Penstock runs its epochs; where Spark runs them alone, it alone knows what has to be there."""
        return self.data.read("pace") not in (b"connected", b"realtime")

    @property
    def done(self) -> dict[str, int]:
        """The newest committed epoch of each query that has one."""
        return {name: max(one.committed) for name, one in self.histories.items() if one.committed}

    def offsets(self, query: str, epoch: int) -> dict[str, Any]:
        """Return up to where an epoch reads each source; nothing where that cannot be told."""
        try:
            return self.layout.queries.get(query, UNKNOWN).by_source(self.histories[query].offsets(epoch))
        except (PenstockError, ValueError, FileNotFoundError):
            return {}


def own_problems(kept: Kept, *, newest_only: bool = False) -> Problems:
    """Return what is wrong with Penstock's own files; `newest_only` leaves out what only earlier epochs need."""
    found, paths = dict(_missing(kept)), list(_paths(kept.data))
    for path in paths:
        if newest_only and _is_past(kept, path):
            continue
        if path not in found and (reason := _reason(kept, path)):
            found[path] = reason
    for name in sorted({match["name"] for path in paths if (match := _JOURNAL.fullmatch(path))}):
        found |= _journal(kept, name)
    return found


def _is_past(kept: Kept, path: str) -> bool:
    """Say whether a run that goes on after the newest committed epochs does not read a file."""
    if match := RECORD.fullmatch(path):
        return int(match["epoch"]) < kept.done.get(match["query"], -1)
    if match := _SEALED.fullmatch(path):
        return int(match["epoch"]) <= kept.done.get(match["query"], -1)
    folder, _, file = path.rpartition("/")
    return _VERSION.fullmatch(path) is not None and file.encode() not in (
        kept.data.read(f"{folder}/newest.json") or b""
    )


def _paths(data: Folder) -> Iterator[str]:
    for name in data.names():
        if name.startswith(_LONG_NAMES) or name == "queries":
            continue
        below = [path for path in (data / name).files() if not path.rpartition("/")[2].startswith(".")]
        yield from (f"{name}/{path}" for path in below) if below else [name]


def _reason(kept: Kept, path: str) -> str | None:
    parse = next((parse for pattern, parse in _PARSERS.items() if re.fullmatch(pattern, path)), None)
    if parse is None and not _VERSION.fullmatch(path) and not _SEALED.fullmatch(path):
        return None
    content = kept.data.read(path)
    if content is None:
        return None  # of a job that runs, it has gone since it was listed
    try:
        if parse is not None:
            parse(content)
        elif match := _VERSION.fullmatch(path):
            return None if hashlib.sha256(content).hexdigest()[:16] == match["hash"] else "does not match its checksum"
        elif match := _SEALED.fullmatch(path):
            return _sealed(kept.data, match["query"], int(match["epoch"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, PenstockError) as error:
        return f"cannot be read ({type(error).__name__})"
    return None


def _sealed(data: Folder, query: str, epoch: int) -> str | None:
    outbox = Outbox(data / "staged" / query / "outbox")
    try:
        whole = outbox.sealed(epoch)
        for share in whole.shares if whole else ():
            for _ in outbox.batches(share):
                pass
    except PenstockError as error:
        return f"cannot be used ({error.message})"
    return None


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
    r"sources/[^/]+/(pace|planned)-[^/]+\.json": _json(list),
    r"parted-[^/]+\.json|staged/[^/]+/tables/[^/]+/newest\.json": _json(dict),
    rf"{REACHED}|rings-[^/]+\.json|sources/[^/]+/(offsets|start)\.json": _json(dict),
    RECORD.pattern: lambda content: Totals(**json.loads(content)),
    r"sources/[^/]+/started": float,
    r"sources/[^/]+/reader": _one_of("penstock", "spark"),
    r"sources/[^/]+/released|staged/[^/]+/begun": int,
    r"staged/[^/]+/tables/[^/]+/[^/]+\.arrow": lambda content: pa.ipc.open_file(io.BytesIO(content)).read_all(),
}


def _journal(kept: Kept, name: str) -> Problems:
    """Check a journal line by line, and that it reaches as far as the newest epoch has read it."""
    folder, _, last = name.rpartition("/")
    path = f"{name}.jsonl" if kept.data.local else name
    try:
        if last == "files":
            end = FileLog(kept.data / folder).end
        elif name == TICKS:
            ticks = Ticks(kept.data)
            end = ticks.end()
            ticks.times(ticks.first, end)
        elif name == WAKEUPS:
            wakeups = Declared(kept.data, WAKEUPS)
            end = wakeups.end()
            for line in wakeups.between(wakeups.first, end):
                woken(line, wakeups.where)
        else:
            return {}
    except (ValueError, TypeError, KeyError, PenstockError) as error:
        reason = error.message if isinstance(error, PenstockError) else type(error).__name__
        return {path: f"cannot be read ({reason})"}
    needed = _read_up_to(kept, folder.removeprefix("sources/") if last == "files" else None, name)
    return {path: f"ends at {end}, and the newest epoch has read up to {needed}"} if needed > end else {}


def _read_up_to(kept: Kept, source: str | None, name: str) -> int:
    """Return the position that the newest planned epoch of any query has in a journal."""
    reached = 0
    for query, history in kept.histories.items():
        for of, offset in kept.offsets(query, max(history.logged, default=-1)).items():
            if source is None:
                reached = max(reached, seen(name, of, offset))
            elif of == source and isinstance(offset, dict):
                reached = max(reached, int(offset.get("0", 0)))
    return reached


def _missing(kept: Kept) -> Iterator[tuple[str, str]]:
    """Yield files that every run leaves, and that are not there."""
    data, done = kept.data, kept.done
    if not done or not kept.in_epochs:
        return
    there = set(data.names())
    names = {LAYOUT, "pace", *(f"parted-{query}.json" for query in done), *([REACHED] if kept.migrated else [])}
    names |= {f"rings-{query}.json" for query in done if WAKEUPS in kept.layout.queries.get(query, UNKNOWN).sources}
    yield from ((name, GONE) for name in sorted(names - there))
    for name in (TICKS, WAKEUPS):
        if not {name, f"{name}.jsonl"} & there and _read_up_to(kept, None, name):
            yield f"{name}.jsonl" if data.local else name, GONE
    for query in done:
        yield from ((f"epochs/{query}/{epoch}.json", GONE) for epoch in missing_records(kept, query))
    yield from _missing_notes(kept)


def _missing_notes(kept: Kept) -> Iterator[tuple[str, str]]:
    """Yield notes that a source of this kind always leaves."""
    for id, node in kept.identity.plan.items():
        name = node_name(node["kind"], id)
        where = f"sources/{source_folder(name)}"
        kind, notes = str(node["does"]).split(" ")[0], kept.data / where
        if kind == "FileSource" and _read_up_to(kept, name, "") and not {"files", "files.jsonl"} & {*notes.names()}:
            yield f"{where}/files" + (".jsonl" if kept.data.local else ""), GONE
        if kind == "TopicSource" and notes.read("reader") != b"spark":
            yield from ((f"{where}/{one}", GONE) for one in ("reader", "start.json") if notes.read(one) is None)


def missing_records(kept: Kept, query: str) -> list[int]:
    """Return the committed epochs of a query whose records are gone.

    An epoch without a record is right where none was run here: after a migration, and after a change of the number of
    partitions, which takes an epoch for itself.
    """
    history, folder = kept.histories[query], kept.data / "epochs" / query
    numbers = {int(name.removesuffix(".json")) for name in folder.names() if re.fullmatch(r"\d+\.json", name)}
    if kept.migrated and (len(history.committed) == 1 or history.repartitioned):
        return []
    oldest = 0 if not kept.migrated and 0 in history.committed else min(numbers, default=max(history.committed))
    return [epoch for epoch in history.committed if epoch >= oldest and epoch not in numbers]


def kept_in(data: Folder, identity: Identity, *, migrated: bool) -> Kept:
    """Return what the integrity check needs to know of a checkpoint."""
    layout = read_layout(data)
    names = [name for name in (data / "queries").names() if not name.startswith(".")]
    histories = {name: History(data / "queries" / name, layout.operators(name)) for name in names}
    return Kept(data, identity, layout, histories, migrated)
