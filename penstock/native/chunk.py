"""One chunk of rows in a program: the rows that leave it, and the newest event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.native import engine
from penstock.native.folds import Folds
from penstock.native.side_outputs import SideOutputs
from penstock.native.steps import INPUT, ORIGIN, ROWS, TICK, TIME, compose

if TYPE_CHECKING:
    from penstock.native.program import Program


@dataclass
class Chunk:
    """Rows in; `run` returns rows out, and leaves counts and further rows in the side outputs."""

    program: Program
    rows: pa.Table
    side_outputs: SideOutputs
    ticks: bool = True
    newest_us: int | None = None

    def run(self) -> pa.Table:
        """Run the program over the chunk."""
        program = self.program
        engine.connection().register(INPUT, engine.unsliced(self.rows))
        try:
            if program.attempts:
                engine.share_subexpressions(False)
            out = engine.query(self._over_chain(program.final))
            newest = self.side_outputs.account(out, _used(out))
            if program.folds is not None:
                out = pa.concat_tables([out, self._folded(program.folds)], promote_options="default")
        except engine.database().Error as error:
            raise engine.failed(program.chain, program.end, self.rows, error) from error
        finally:
            engine.connection().unregister(INPUT)
            if program.attempts:
                engine.share_subexpressions(True)
        out = out.select(program.output.names).cast(program.output.arrow)
        if newest is None:
            return out
        self.newest_us = pa.scalar(newest, pa.timestamp("us", "UTC")).value
        return _with_tick(out, newest) if self.ticks else out

    def _over_chain(self, sql: str) -> str:
        return sql.format(input=f"({compose(self.program.chain)})", on_time=self.side_outputs.on_time)

    def _folded(self, folds: Folds) -> pa.Table:
        return folds.partials(engine.query(self._over_chain(folds.sql)))


def newest_by_origin(program: Program, rows: pa.Table, newest_us: int) -> dict[int, int]:
    """Return the newest event time of each origin among rows whose newest is known: mostly they have one origin."""
    first, last = pc.min_max(rows.column(ORIGIN)).as_py().values()
    if first == last:
        return {first: newest_us}
    kinds = [step.kind for step in program.chain]
    timed = compose(program.chain[: kinds.index("event_time") + 1])
    engine.connection().register(INPUT, rows)
    try:
        sql = f"SELECT {ORIGIN}, epoch_us(max({TIME})) FROM ({timed}) GROUP BY {ORIGIN}"
        return dict(engine.connection().sql(sql).fetchall())
    finally:
        engine.connection().unregister(INPUT)


def _used(out: pa.Table) -> int:
    """Return how many rows went into a result."""
    return (pc.sum(out.column(ROWS)).as_py() or 0) if ROWS in out.column_names else out.num_rows


def _with_tick(out: pa.Table, newest: Any) -> pa.Table:
    """Add a row that carries the newest event time if no other row does: the watermark follows all rows."""
    last = pc.max(out.column(TIME)).as_py() if out.num_rows else None
    if last == newest:
        return out
    tick = dict.fromkeys(out.column_names) | {TIME: newest, TICK: True}
    return pa.concat_tables([out, pa.Table.from_pylist([tick], schema=out.schema)])
