"""Replay: rejected rows go back into the source that they came from, each once, and the job reads them as any row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.errors import CannotReplay
from penstock.folders import Folder
from penstock.pipeline import Pipeline
from penstock.plan.nodes import Read
from penstock.rejected.journal import Replays
from penstock.rejected.payloads import Return
from penstock.rejected.recovery import Lost, read_of, source_values
from penstock.rejected.rows import RejectedRow, identified
from penstock.rejected.targets import Target, target_of
from penstock.settings import Settings

Why = tuple[str, str]


@dataclass
class Replayed:
    """What a replay did, or would do: rows by source, and by node and reason those that cannot go back."""

    rows: dict[str, int] = field(default_factory=dict)
    into: dict[str, str] = field(default_factory=dict)
    before: int = 0
    reasons: Counter[Why] = field(default_factory=Counter)
    lost: Counter[Why] = field(default_factory=Counter)


def replay(
    pipeline: Pipeline,
    rejected: Sequence[RejectedRow],
    checkpoint: Folder,
    settings: Settings,
    *,
    node: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
) -> Replayed:
    """Send rows back that were not sent before; `node` and `reason` choose some, `dry_run` only counts."""
    chosen = [
        (id, row)
        for id, row in identified(rejected)
        if (node is None or row.node == node) and (reason is None or reason in row.reason)
    ]
    done = Replayed()
    by_source: dict[Read, list[tuple[str, RejectedRow, Return]]] = {}
    for id, row, read, back in _ways_back(chosen, pipeline, done):
        by_source.setdefault(read, []).append((id, row, back))
    for read, rows in by_source.items():
        _into(read, rows, pipeline, checkpoint, settings, done, dry_run=dry_run)
    return done


def _ways_back(
    chosen: list[tuple[str, RejectedRow]], pipeline: Pipeline, done: Replayed
) -> Iterator[tuple[str, RejectedRow, Read, Return]]:
    for id, row in chosen:
        try:
            read = read_of(row, pipeline.graph)
            yield id, row, read, _back(row, read, pipeline)
        except Lost as lost:
            done.lost[row.node, str(lost)] += 1


def _back(row: RejectedRow, read: Read, pipeline: Pipeline) -> Return:
    if row.node == pipeline.graph.name(read) and row.raw is not None:
        if not row.raw:
            message = f"its bytes are gone: {row.reason}"
            raise Lost(message)
        return Return(row.raw, {}, row.position)
    if row.row is None:
        message = "neither its bytes nor its values were kept"
        raise Lost(message)
    return Return(None, source_values(row, pipeline.graph), row.position)


def _into(
    read: Read,
    rows: list[tuple[str, RejectedRow, Return]],
    pipeline: Pipeline,
    checkpoint: Folder,
    settings: Settings,
    done: Replayed,
    *,
    dry_run: bool,
) -> None:
    name, source = pipeline.graph.name(read), read.source
    source.under(settings.files)
    source.within(pipeline.name, settings)
    source.check()
    replays = Replays(checkpoint, name)
    target = target_of(source, pipeline.name, replays)
    newest = target.newest(alone=not dry_run)
    known = replays.replayed(newest)
    fresh = [(id, row, back) for id, row, back in rows if id not in known]
    done.before += len(rows) - len(fresh)
    done.into[name], done.rows[name] = target.said, len(fresh)
    done.reasons.update((row.node, row.reason) for _, row, _ in fresh)
    if fresh and not dry_run:
        _write(replays, target, newest + 1, fresh)


def _write(replays: Replays, target: Target, number: int, rows: list[tuple[str, RejectedRow, Return]]) -> None:
    try:
        replays.note(number, [id for id, _, _ in rows])
    except FileExistsError as error:
        message = f"another replay into {target.said} is under way"
        raise CannotReplay(message, hint="wait for it, then run this again", transient=True) from error
    target.write(number, [back for _, _, back in rows])
    replays.finish(number)
