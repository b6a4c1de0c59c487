"""A program: the native prefix of one source, run by the tasks that read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.contracts import REJECTED
from penstock.native.chunk import Chunk, newest_by_origin
from penstock.native.folds import Folds
from penstock.native.side_outputs import Kind, SideOutputs, SideRows
from penstock.native.steps import ORIGIN, REASON, Step
from penstock.rejected.rows import row_dicts, row_json
from penstock.schema import Schema
from penstock.windows import ALL_TIMES, TimeRange, Window

# Fewer rows make more partials, each of which Spark must merge; wide rows are bounded by their bytes.
CHUNK_ROWS = 1_000_000
CHUNK_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Program:
    """SQL made on the driver; small, and the same for every epoch.

    `time_source` is the input column that is the event time, if it is not computed. A `final` that makes
    partial results counts the rows of each in a column `ROWS`; `inputs` is the check of what it takes of each row;
    `end` is the aggregate as an error shows it.
    """

    chain: tuple[Step, ...]
    output: Schema
    final: str
    time_column: str | None = None
    time_source: str | None = None
    time_range: TimeRange = ALL_TIMES
    late_node: str | None = None
    late_window: Window | None = None
    lateness_us: int = 0
    partial_node: str | None = None
    folds: Folds | None = None
    inputs: Step | None = None
    end: Step | None = None

    @property
    def attempts(self) -> bool:
        """Whether rows may be rejected because an expression fails on them."""
        return self.inputs is not None or any(step.attempts for step in self.chain)

    @property
    def keeps_origin(self) -> bool:
        """Whether the steps up to the event time pass on a column that they do not know."""
        kinds = [step.kind for step in self.chain]
        first = self.chain[: kinds.index("event_time") + 1] if "event_time" in kinds else ()
        return bool(first) and all(step.kind in ("filter", "event_time") and not step.attempts for step in first)

    def start(self, watermark_us: int, *, ticks: bool = True) -> Run:
        """Start one task's read, with the watermark of the epoch before.

        With `ticks`, an extra row carries the newest event time where the row that had it was dropped.
        """
        if self.late_node is None:
            return Run(self, None, ticks)
        own = watermark_us - self.lateness_us
        return Run(self, self.late_window.late_before(own) if self.late_window else own, ticks)


@dataclass
class Run:
    """One task's run of a program: rows in, rows out, and rows for side outputs.

    `newest_us` is the newest event time so far; a caller resets it to get that of the next rows alone. Where a
    program keeps them, rows may come with a column `ORIGIN`: then the newest time is also known for each value of it.
    """

    program: Program
    late_before_us: int | None
    ticks: bool = True
    newest_us: int | None = None
    newest_by_origin: dict[int, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    _side_rows: list[SideRows] = field(default_factory=list)

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the program over the rows, a chunk at a time, so that memory stays bounded."""
        for table in _chunks(rows):
            plain = table.drop_columns([ORIGIN]) if ORIGIN in table.column_names else table
            sides = SideOutputs(self.program, plain, self.late_before_us, self.counts, self._side_rows)
            chunk = Chunk(self.program, plain, sides, self.ticks)
            out = chunk.run()
            if chunk.newest_us is not None:
                self._advance(table, chunk.newest_us)
            yield from out.to_batches(max_chunksize=65_536)

    def _advance(self, rows: pa.Table, newest_us: int) -> None:
        self.newest_us = max(newest_us, newest_us if self.newest_us is None else self.newest_us)
        if ORIGIN in rows.column_names:
            for origin, at in newest_by_origin(self.program, rows, newest_us).items():
                self.newest_by_origin[origin] = max(at, self.newest_by_origin.get(origin, at))

    def side_rows(self, epoch: int) -> Iterator[SideRows]:
        """Yield late rows as they came, and rejected rows with their reasons: once per kind and node, of all chunks."""
        found: dict[tuple[Kind, str], list[pa.Table]] = {}
        for kind, node, rows in self._side_rows:
            found.setdefault((kind, node), []).append(rows)
        for (kind, node), tables in found.items():
            rows = pa.concat_tables(tables)
            if kind == "rejected":
                rows = _rejected(rows, node, epoch)
            yield kind, node, rows


def _chunks(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        if batch.num_rows:
            waiting.append(batch)
            count, size = count + batch.num_rows, size + batch.nbytes
        if count >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _rejected(rows: pa.Table, node: str, epoch: int) -> pa.Table:
    reasons, rows = rows.column(REASON).to_pylist(), rows.drop_columns([REASON])
    return pa.Table.from_pylist(
        [
            {"node": node, "reason": reason, "row": row_json(row), "epoch": epoch}
            for reason, row in zip(reasons, row_dicts(rows), strict=True)
        ],
        schema=REJECTED.arrow,
    )
