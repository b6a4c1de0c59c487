"""A checkpoint: the folder that holds a job's whole past.

penstock.json     pipeline, lineage, fingerprints     lease*     who uses it
queries/NAME/     Spark's offsets, commits and state  sources/   notes of each source
staged/NAME/      late and rejected rows of epochs    epochs/    what each epoch did
ticks.jsonl       times that the driver declared
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from penstock.errors import CheckpointDamaged, CheckpointMismatch, DiskFull, SettingsError
from penstock.plan.fingerprint import fingerprints, skeleton
from penstock.plan.graph import Graph
from penstock.plan.lanes import split_lanes
from penstock.plan.nodes import EventTime
from penstock.spark.clock import declare
from penstock.spark.lease import Lease
from penstock.spark.staging import Staging

FORMAT = 2


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to."""

    format: int
    pipeline: str
    lineage: str
    skeleton: str
    nodes: dict[str, str]
    times: dict[str, str]


class Checkpoint:
    """Opened by one driver; refuses a pipeline that it does not belong to."""

    def __init__(self, folder: str | Path, pipeline: str, graph: Graph, lane: str = "auto") -> None:
        self.folder = Path(folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lease = Lease(self.folder)
        except OSError as error:
            raise _unusable(self.folder, error) from error
        self.lease.take(pipeline)
        try:
            self.identity = self._identify(pipeline, graph, lane)
        except BaseException:
            self.lease.release()
            raise

    def query(self, name: str) -> Path:
        """Spark's folder of one query."""
        return self.folder / "queries" / name

    def source(self, name: str) -> Path:
        """The folder where a source keeps its notes."""
        path = self.folder / "sources" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def staging(self, name: str) -> Staging:
        """Where the tasks of one query leave late and rejected rows."""
        return Staging(str(self.folder / "staged" / name))

    @property
    def ticks(self) -> Path:
        """The file of times that the driver declared."""
        return self.folder / "ticks.jsonl"

    def tick(self, time: datetime) -> None:
        """Declare durably that no row before this time will come."""
        declare(self.ticks, time)

    def close(self) -> None:
        """Give the lease back."""
        self.lease.release()

    def _identify(self, pipeline: str, graph: Graph, lane: str) -> Identity:
        lanes = split_lanes(graph, lane)
        times = {graph.name(node): lanes.lane(node) for node in graph.nodes if isinstance(node, EventTime)}
        mine = Identity(FORMAT, pipeline, uuid.uuid4().hex[:12], skeleton(graph), fingerprints(graph), times)
        path = self.folder / "penstock.json"
        if not path.exists():
            if (self.folder / "offsets").exists():
                message = f"{self.folder} is a checkpoint of Spark's own, not of Penstock"
                raise CheckpointMismatch(message, hint="choose another --checkpoint folder")
            write_whole(path, json.dumps(asdict(mine), indent=2).encode())
            return mine
        try:
            found = Identity(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            message = f"{path} cannot be read: {error}"
            raise CheckpointDamaged(message, hint="restore it from a copy, or start a new checkpoint") from error
        _same(found, mine, self.folder)
        return found


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file durably: all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _unusable(path, error) from error


def _same(found: Identity, mine: Identity, folder: Path) -> None:
    if found.pipeline != mine.pipeline:
        message = (
            f"checkpoint {folder} belongs to pipeline '{found.pipeline}' ({found.skeleton}), "
            f"not to '{mine.pipeline}' ({mine.skeleton})"
        )
        raise CheckpointMismatch(message, hint="choose another --checkpoint folder for this pipeline")
    if found.skeleton == mine.skeleton:
        _same_lanes(found, mine, folder)
        return
    changed = [
        f"{name}: {found.nodes.get(name, '(not there)')} -> {mine.nodes.get(name, '(gone)')}"
        for name in sorted({*found.nodes, *mine.nodes})
        if found.nodes.get(name) != mine.nodes.get(name)
    ]
    what = "; ".join(changed) or "its sources or branches differ"
    message = (
        f"checkpoint {folder} was written by another version of '{mine.pipeline}': "
        f"fingerprint {found.skeleton} there, {mine.skeleton} here ({what})"
    )
    hint = "its state would change meaning: run the old version, or give this one a new --checkpoint folder"
    raise CheckpointMismatch(message, hint=hint)


def _same_lanes(found: Identity, mine: Identity, folder: Path) -> None:
    """Refuse an event time that moved to the other lane: Spark's one has a source of its own in the checkpoint."""
    for node, lane in mine.times.items():
        if found.times.get(node, lane) != lane:
            message = (
                f"checkpoint {folder}: the event time was declared in the {found.times[node]} lane, now in {lane}'s"
            )
            hint = "undo the change before it or of the setting `lane`, or give this version a new --checkpoint folder"
            raise CheckpointMismatch(message, node=f"event_time '{node}'", hint=hint)


def _unusable(path: Path, error: OSError) -> SettingsError | DiskFull:
    if error.errno == 28:  # ENOSPC
        message = f"no space is left for {path}"
        return DiskFull(message, hint="free some space, or choose another --checkpoint folder", transient=True)
    message = f"cannot write {path}: {error.strerror}"
    return SettingsError(message, hint="choose a --checkpoint folder that you may write to")
