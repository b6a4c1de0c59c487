"""A program: the native prefix of one source, run by the tasks that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.contracts import REJECTED
from penstock.errors import ExpressionFailed
from penstock.schema import Schema
from penstock.windows import Window

if TYPE_CHECKING:
    import duckdb

INPUT = "penstock_input"
TIME = "__penstock_time"
TICK = "__penstock_tick"
CHUNK_ROWS = 1_000_000
Aside = tuple[Literal["late", "rejected"], str, pa.Table]


@dataclass(frozen=True)
class Step:
    """One node of the chain: `sql` reads `{input}`; `expression` is what an error shows."""

    node: str
    kind: str
    sql: str
    expression: str


def compose(chain: tuple[Step, ...]) -> str:
    """Nest steps into one query over the input table."""
    sql = f"SELECT * FROM {INPUT}"
    for step in chain:
        sql = step.sql.format(input=f"({sql})")
    return sql


def quote(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Program:
    """SQL made on the driver; small, and the same for every epoch."""

    chain: tuple[Step, ...]
    output: Schema
    final: str
    time_column: str | None = None
    late_node: str | None = None
    late_window: Window | None = None
    late_extra_us: int = 0

    def start(self, watermark_us: int) -> Run:
        """Begin one task's read, by the watermark of the epoch before."""
        if self.late_node is None:
            return Run(self, None)
        own = watermark_us + self.late_extra_us if watermark_us else 0
        return Run(self, self.late_window.late_before(own) if self.late_window else own)


@dataclass
class Run:
    """One task's run of a program: rows in, rows out, and what goes aside."""

    program: Program
    late_before_us: int | None
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    _aside: list[tuple[str, str, pa.Table]] = field(default_factory=list)

    def batches(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the program over the rows, a chunk at a time, so that memory stays bounded."""
        for chunk in _chunks(rows):
            yield from self._chunk(chunk)

    def aside(self, epoch: int) -> Iterator[Aside]:
        """Yield late rows as they came, and rows without a time as rejected: once per kind and node, of all chunks."""
        found: dict[tuple[str, str], list[pa.Table]] = {}
        for kind, node, rows in self._aside:
            found.setdefault((kind, node), []).append(rows)
        for (kind, node), tables in found.items():
            rows = pa.concat_tables(tables)
            if kind == "late":
                yield "late", node, rows
            else:
                yield "rejected", node, _rejected(rows, node, self.program.time_column or "", epoch)

    def _chunk(self, chunk: pa.Table) -> Iterator[pa.RecordBatch]:
        connection = _connection()
        connection.register(INPUT, chunk)
        try:
            newest = self._tally(connection, chunk.num_rows)
            on_time = "TRUE" if self.late_before_us is None else f"epoch_us({TIME}) >= {self.late_before_us}"
            sql = self.program.final.format(input=f"({compose(self.program.chain)})", on_time=on_time)
            out = connection.sql(sql).to_arrow_table()
        except _duckdb().Error as error:
            raise self._named(connection, chunk, error) from error
        finally:
            connection.unregister(INPUT)
        out = _with_tick(out, newest) if newest is not None else out
        yield from out.cast(self.program.output.arrow).to_batches(max_chunksize=65_536)

    def _tally(self, connection: duckdb.DuckDBPyConnection, rows: int) -> Any:
        """Count what each step drops and put it aside; return the newest event time of the chunk."""
        newest, has_late = None, False
        chain = self.program.chain
        for number, step in enumerate(chain):
            so_far = compose(chain[: number + 1])
            if step.kind == "filter":
                (kept,) = _one(connection, f"SELECT count(*) FROM ({so_far})")
                self._count(step.node, filtered=rows - kept)
                rows = kept
            elif step.kind == "event_time":
                newest, oldest, kept = _one(
                    connection, f"SELECT max({TIME}), epoch_us(min({TIME})), count(*) FROM ({so_far})"
                )
                if kept < rows:
                    self._reject(connection, number, rows - kept)
                rows = kept
                has_late = oldest is not None and self.late_before_us is not None and oldest < self.late_before_us
        if newest is not None and has_late:
            self._part_late(connection)
        return newest

    def _reject(self, connection: duckdb.DuckDBPyConnection, number: int, count: int) -> None:
        before = compose(self.program.chain[:number])
        column = quote(self.program.time_column or "")
        table = connection.sql(f"SELECT * FROM ({before}) WHERE {column} IS NULL").to_arrow_table()
        node = self.program.chain[number].node
        self._aside.append(("rejected", node, table))
        self._count(node, rejected=count)

    def _part_late(self, connection: duckdb.DuckDBPyConnection) -> None:
        assert self.program.late_node is not None
        all_rows = compose(self.program.chain)
        sql = f"SELECT * EXCLUDE ({TIME}) FROM ({all_rows}) WHERE epoch_us({TIME}) < {self.late_before_us}"
        table = connection.sql(sql).to_arrow_table()
        if table.num_rows:
            self._aside.append(("late", self.program.late_node, table))
            self._count(self.program.late_node, late=table.num_rows)

    def _count(self, node: str, **counted: int) -> None:
        mine = self.counts.setdefault(node, {})
        for name, count in counted.items():
            mine[name] = mine.get(name, 0) + count

    def _named(self, connection: duckdb.DuckDBPyConnection, chunk: pa.Table, error: duckdb.Error) -> ExpressionFailed:
        """Find the step and the row that failed."""
        chain = self.program.chain
        for number, step in enumerate(chain):
            row = _failing_row(connection, compose(chain[: number + 1]), chunk)
            if row is not None:
                message = f'"{step.expression}" failed: {_reason(error)}; the row was {row}'
                return ExpressionFailed(message, node=f"{step.kind} '{step.node}'", hint=_hint(error))
        node = self.program.late_node or "scan"
        message = f"an aggregate failed: {_reason(error)}"
        return ExpressionFailed(message, node=f"aggregate '{node}'", hint=_hint(error))


def _failing_row(connection: duckdb.DuckDBPyConnection, sql: str, chunk: pa.Table) -> dict[str, Any] | None:
    """Bisect to one row on which the query fails."""
    if not _fails(connection, sql, chunk):
        return None
    while chunk.num_rows > 1:
        half = chunk.slice(0, chunk.num_rows // 2)
        chunk = half if _fails(connection, sql, half) else chunk.slice(chunk.num_rows // 2)
    row: dict[str, Any] = chunk.to_pylist()[0]
    return row


def _fails(connection: duckdb.DuckDBPyConnection, sql: str, chunk: pa.Table) -> bool:
    connection.register(INPUT, chunk)
    try:
        connection.sql(sql).to_arrow_table()
    except _duckdb().Error:
        return True
    finally:
        connection.unregister(INPUT)
    return False


def _chunks(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in rows:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting and any(batch.num_rows for batch in waiting):
        yield pa.Table.from_batches(waiting)


def _with_tick(out: pa.Table, newest: Any) -> pa.Table:
    """Add a row that carries the newest event time if no other row does: the watermark follows all rows."""
    last = pc.max(out.column(TIME)).as_py() if out.num_rows else None
    if last == newest:
        return out
    tick = dict.fromkeys(out.column_names) | {TIME: newest, TICK: True}
    return pa.concat_tables([out, pa.Table.from_pylist([tick], schema=out.schema)])


def _rejected(rows: pa.Table, node: str, column: str, epoch: int) -> pa.Table:
    reason = f"event time '{column}' is null"
    return pa.Table.from_pylist(
        [
            {"node": node, "reason": reason, "row": json.dumps(row, default=str), "epoch": epoch}
            for row in rows.to_pylist()
        ],
        schema=REJECTED.arrow,
    )


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    return connection.sql(sql).fetchall()[0]


def _reason(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _hint(error: duckdb.Error) -> str:
    return "use try_add, try_subtract, try_multiply or try_sum, which give null on overflow"


def _duckdb() -> Any:
    """Load DuckDB in tasks only: Spark's planner imports this module too."""
    import duckdb

    return duckdb


@cache
def _connection() -> Any:
    """One connection per worker process; one thread, for Spark runs a task per core."""
    connection = _duckdb().connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
    return connection
