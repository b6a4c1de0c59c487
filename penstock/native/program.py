"""A program: the native prefix of one source, run by the tasks that read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.contracts import REJECTED
from penstock.native.chunk import Aside, Chunk, Kind
from penstock.native.folds import Folds
from penstock.native.steps import REASON, Step
from penstock.rejected.rows import row_dicts, row_json
from penstock.schema import Schema
from penstock.windows import ALL_TIMES, TimeRange, Window

# Fewer rows make more partials, each of which Spark must merge; wide rows are bounded by their bytes.
CHUNK_ROWS = 1_000_000
CHUNK_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Program:
    """SQL made on the driver; small, and the same for every epoch.

    `time_source` is the column of the input that holds the event time as it is, if there is one. A `final` that makes
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

    def start(self, watermark_us: int) -> Run:
        """Begin one task's read, by the watermark of the epoch before."""
        if self.late_node is None:
            return Run(self, None)
        own = watermark_us - self.lateness_us
        return Run(self, self.late_window.late_before(own) if self.late_window else own)


@dataclass
class Run:
    """One task's run of a program: rows in, rows out, and what goes aside."""

    program: Program
    late_before_us: int | None
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    _aside: list[Aside] = field(default_factory=list)

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the program over the rows, a chunk at a time, so that memory stays bounded."""
        for table in _chunks(rows):
            chunk = Chunk(self.program, table, self.late_before_us, self.counts, self._aside)
            yield from chunk.run().to_batches(max_chunksize=65_536)

    def aside(self, epoch: int) -> Iterator[Aside]:
        """Yield late rows as they came, and rejected rows with their reasons: once per kind and node, of all chunks."""
        found: dict[tuple[Kind, str], list[pa.Table]] = {}
        for kind, node, rows in self._aside:
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
