"""Replay: writes rejected rows back to the source that they came from, each once; the job reads them as new rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.connectors.topics.source import TopicSource
from penstock.errors import CannotReplay
from penstock.plan.graph import Graph, reads_in, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import (
    Read,
)
from penstock.rejected.rows import RejectedRow, identified
from penstock.rejected.targets import Replays, ReturnedRow, Target, target_of
from penstock.settings import Settings
from penstock.storage.folders import Folder

Why = tuple[str, str]


@dataclass
class Replayed:
    """The result of a replay: rows by source, and by node and reason those that cannot be replayed."""

    rows: dict[str, int] = field(default_factory=dict)
    into: dict[str, str] = field(default_factory=dict)
    before: int = 0
    reasons: Counter[Why] = field(default_factory=Counter)
    lost: Counter[Why] = field(default_factory=Counter)


class NamedGraph(Protocol):
    """What replay reads of a pipeline."""

    @property
    def name(self) -> str:
        """The name of the pipeline."""

    @property
    def graph(self) -> Graph:
        """Its nodes."""


def replay(
    pipeline: NamedGraph,
    rejected: Sequence[RejectedRow],
    checkpoint: Folder,
    settings: Settings,
    *,
    node: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    limit: int | None = None,
) -> Replayed:
    """Write back rows that were not replayed before; `node` and `reason` select some, `dry_run` only counts.

    `limit` is the most rows that each source gets.
    """
    chosen = [
        (id, row)
        for id, row in identified(rejected)
        if (node is None or row.node == node) and (reason is None or reason in row.reason)
    ]
    done = Replayed()
    by_source: dict[Read, list[tuple[str, RejectedRow, ReturnedRow]]] = {}
    for id, row, read, back in _ways_back(chosen, pipeline, done):
        by_source.setdefault(read, []).append((id, row, back))
    for read, rows in by_source.items():
        _into(read, rows, pipeline, checkpoint, settings, done, dry_run=dry_run, limit=limit)
    return done


def _ways_back(
    chosen: list[tuple[str, RejectedRow]], pipeline: NamedGraph, done: Replayed
) -> Iterator[tuple[str, RejectedRow, Read, ReturnedRow]]:
    for id, row in chosen:
        try:
            read = read_of(row, pipeline.graph)
            yield id, row, read, _back(row, read, pipeline)
        except SourceRowLost as lost:
            done.lost[row.node, str(lost)] += 1


def _back(row: RejectedRow, read: Read, pipeline: NamedGraph) -> ReturnedRow:
    if row.node == pipeline.graph.name(read) and row.raw is not None:
        if not row.raw:
            message = f"its bytes are lost: {row.reason}"
            raise SourceRowLost(message)
        return ReturnedRow(row.raw, {}, row.position)
    if row.row is None:
        message = "neither its bytes nor its values were stored"
        raise SourceRowLost(message)
    return ReturnedRow(None, source_values(row, pipeline.graph), row.position)


def _into(
    read: Read,
    rows: list[tuple[str, RejectedRow, ReturnedRow]],
    pipeline: NamedGraph,
    checkpoint: Folder,
    settings: Settings,
    done: Replayed,
    *,
    dry_run: bool,
    limit: int | None,
) -> None:
    name, source = pipeline.graph.name(read), read.source
    source.set_base_path(settings.files)
    source.configure(pipeline.name, settings)
    source.check()
    replays = Replays(checkpoint, name)
    target = target_of(source, pipeline.name, replays)
    newest = target.newest(alone=not dry_run)
    known = replays.replayed(newest)
    fresh = [(id, row, back) for id, row, back in rows if id not in known]
    done.before += len(rows) - len(fresh)
    fresh = fresh[:limit]
    done.into[name], done.rows[name] = target.said, len(fresh)
    done.reasons.update((row.node, row.reason) for _, row, _ in fresh)
    if fresh and not dry_run:
        _write(replays, target, newest + 1, fresh)


def _write(replays: Replays, target: Target, number: int, rows: list[tuple[str, RejectedRow, ReturnedRow]]) -> None:
    try:
        replays.record(number, [id for id, _, _ in rows])
    except FileExistsError as error:
        message = f"another replay into {target.said} is running"
        raise CannotReplay(message, hint="wait for it, then run this again", transient=True) from error
    target.write(number, [back for _, _, back in rows])
    replays.finish(number)


class SourceRowLost(Exception):
    """The source row cannot be recovered; the message has the reason."""


def read_of(row: RejectedRow, graph: Graph) -> Read:
    """Return the source that a row came from."""
    node = next((node for node, name in graph.names.items() if name == row.node), None)
    if node is None:
        message = f"the pipeline has no node '{row.node}' any more"
        raise SourceRowLost(message)
    reads = reads_in(upstream(node))
    found = [one for one in reads if row.source in (None, graph.name(one))]
    if len(found) != 1:
        names = ", ".join(graph.name(one) for one in reads)
        message = f"rows of several sources are combined at '{row.node}' ({names})"
        raise SourceRowLost(message)
    return found[0]


def source_values(row: RejectedRow, graph: Graph) -> dict[str, Any]:
    """Return the values of the source's columns, recovered from the input of a node."""
    node = next(node for node, name in graph.names.items() if name == row.node)
    read = read_of(row, graph)
    names = _names(node.inputs[0] if node.inputs else node, graph)
    values = row.values
    found = {source: values.get(name) for name, source in names.items()}
    missing = [name for name in own_columns(read) if name not in found]
    if missing:
        message = f"'{row.node}' was not given {', '.join(missing)} of source '{graph.name(read)}' as it was read"
        raise SourceRowLost(message)
    return found


def own_columns(read: Read) -> list[str]:
    """Return the columns of the payload, without the record's metadata."""
    beside = len(read.source.include) if isinstance(read.source, TopicSource) else 0
    return list(read.schema.names[: len(read.schema) - beside])


def _names(node: Node, graph: Graph) -> dict[str, str]:
    """Return which columns of a node are unchanged columns of its source: name here, name there."""
    if not node.inputs:
        return {name: name for name in node.schema.names}
    if len(node.inputs) != 1 or node.carried is None:
        message = f"it was made by '{graph.name(node)}'"
        raise SourceRowLost(message)
    before = _names(node.inputs[0], graph)
    return {name: before[own] for name, own in node.carried.items() if own in before}
