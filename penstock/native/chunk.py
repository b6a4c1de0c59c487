"""One chunk of rows in a program, and the accounting of each of its rows.

What input and result already show is not computed by DuckDB again: most chunks are read once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.native import engine
from penstock.native.fallible_expressions import WHY, failed_rows, reasons
from penstock.native.folds import Folds
from penstock.native.steps import INPUT, INTERNAL, ORIGIN, REASON, ROWS, TICK, TIME, Step, compose, quote, usable
from penstock.native.steps import reasons as time_reasons

if TYPE_CHECKING:
    from penstock.native.program import Program

Kind = Literal["late", "rejected"]
SideRows = tuple[Kind, str, pa.Table]


@dataclass
class Chunk:
    """Rows in; `run` returns rows out, and leaves counts and side-output rows here."""

    program: Program
    rows: pa.Table
    late_before_us: int | None
    ticks: bool = True
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    side_rows: list[SideRows] = field(default_factory=list)
    newest_us: int | None = None

    def run(self) -> pa.Table:
        """Run the program over the chunk."""
        program = self.program
        engine.connection().register(INPUT, engine.unsliced(self.rows))
        try:
            if program.attempts:
                engine.share_subexpressions(False)
            out = self._query(self._over_chain(program.final))
            newest = self._account(out, _used(out))
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
        return sql.format(input=f"({compose(self.program.chain)})", on_time=self._on_time)

    @property
    def _on_time(self) -> str:
        return f"epoch_us({TIME}) >= {self.late_before_us}" if self._may_be_late else "TRUE"

    def _folded(self, folds: Folds) -> pa.Table:
        return folds.partials(self._query(self._over_chain(folds.sql)))

    def _account(self, out: pa.Table, used: int) -> Any:
        """Count what each step dropped; return the newest of all event times, if there are any."""
        dropped = self.rows.num_rows - used
        suspects = [step for step in self.program.chain if step.kind == "filter"]
        if dropped and (len(suspects) != 1 or self._may_lack_time or self._may_be_late or self.program.attempts):
            return self._account_by_step(used)
        if dropped:
            self._count(suspects[0].node, filtered=dropped)
        if self.program.time_column is None:
            return None
        times = self.rows.column(self.program.time_source) if dropped and self._drops_timed(suspects[0]) else out[TIME]
        return pc.max(times).as_py()

    def _drops_timed(self, step: Step) -> bool:
        """Whether a step is downstream of the event time, so that it may have dropped the newest row."""
        kinds = [one.kind for one in self.program.chain[: self.program.chain.index(step)]]
        return "event_time" in kinds

    @cached_property
    def _may_be_late(self) -> bool:
        if self.late_before_us is None:
            return False
        if self.program.time_source is None:
            return True
        oldest, _ = self._times
        return oldest is not None and bool(oldest < self.late_before_us)

    @cached_property
    def _times(self) -> tuple[int | None, int | None]:
        """The oldest and the newest time of the input."""
        found = pc.min_max(self.rows.column(self.program.time_source).cast(pa.int64())).as_py()
        return found["min"], found["max"]

    @cached_property
    def _may_lack_time(self) -> bool:
        source = self.program.time_source
        if self.program.time_column is None:
            return False
        if source is None or self.rows.column(source).null_count:
            return True
        (oldest, newest), usable = self._times, self.program.time_range
        return oldest is not None and newest is not None and (oldest < usable.first_us or newest >= usable.end_us)

    def _account_by_step(self, used: int) -> Any:
        """Count step by step how many rows are left; what the last one left is known."""
        chain, newest = self.program.chain, None
        rows, end = self.rows.num_rows, used + self._reject_inputs() + (self._divert_late() if self._may_be_late else 0)
        droppers = [n for n, step in enumerate(chain) if step.kind in ("filter", "event_time") or step.attempts]
        for number in droppers:
            step, so_far = chain[number], compose(chain[: number + 1])
            if step.kind == "event_time":
                newest, kept = self._one(f"SELECT max({TIME}), count(*) FROM ({so_far})")
                self._reject_timeless(number, rows - kept)
            else:
                (kept,) = (end,) if number == droppers[-1] else self._one(f"SELECT count(*) FROM ({so_far})")
                rejected = self._reject_failed(step, compose(chain[:number])) if step.attempts and rows > kept else 0
                if step.kind == "filter":
                    self._count(step.node, filtered=rows - kept - rejected)
            rows = kept
        return newest

    def _reject_timeless(self, number: int, count: int) -> None:
        if not count:
            return
        column = self.program.time_column or ""
        before = compose(self.program.chain[:number])
        times = self.program.time_range
        rows = self._query(f"SELECT * FROM ({before}) WHERE {usable(quote(column), times)} IS NOT TRUE")
        self._reject(self.program.chain[number].node, rows, time_reasons(column, rows.column(column), times))

    def _reject_failed(self, step: Step, before: str, where: str = "TRUE") -> int:
        """Reject the rows on which an expression of a step fails."""
        found = self._query(failed_rows(step.attempts, f"({before})", where))
        texts = reasons(step.attempts)
        if found.num_rows:
            rows = found.drop_columns([name for name in found.column_names if name.startswith(INTERNAL)])
            self._reject(step.node, rows, [texts[why] for why in found.column(WHY).to_pylist()])
        return int(found.num_rows)

    def _reject_inputs(self) -> int:
        """Reject the rows that are on time, but fail in the aggregate."""
        if self.program.inputs is None:
            return 0
        return self._reject_failed(self.program.inputs, compose(self.program.chain), self._on_time)

    def _reject(self, node: str, rows: pa.Table, why: list[str]) -> None:
        self.side_rows.append(("rejected", node, rows.append_column(REASON, pa.array(why, pa.string()))))
        self._count(node, rejected=rows.num_rows)

    def _divert_late(self) -> int:
        node, all_rows = self.program.late_node, compose(self.program.chain)
        assert node is not None
        late = f"epoch_us({TIME}) < {self.late_before_us}"
        table = self._query(f"SELECT * EXCLUDE ({TIME}) FROM ({all_rows}) WHERE {late}")
        if table.num_rows:
            self.side_rows.append(("late", node, table))
            self._count(node, late=table.num_rows)
        return int(table.num_rows)

    def _count(self, node: str, **counted: int) -> None:
        mine = self.counts.setdefault(node, {})
        for name, count in counted.items():
            mine[name] = mine.get(name, 0) + count

    def _query(self, sql: str) -> pa.Table:
        return engine.connection().sql(sql).to_arrow_table()

    def _one(self, sql: str) -> tuple[Any, ...]:
        found: tuple[Any, ...] = engine.connection().sql(sql).fetchall()[0]
        return found


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
