"""Side outputs in the native lane: late and rejected rows are separated here, and the rows that a step drops counted.

What input and result already show is not computed by DuckDB again: most chunks are read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.native import engine
from penstock.native.fallible_expressions import WHY, failed_rows, reasons
from penstock.native.steps import INTERNAL, REASON, TIME, Step, compose, quote, usable
from penstock.native.steps import reasons as time_reasons

if TYPE_CHECKING:
    from penstock.native.program import Program

Kind = Literal["late", "rejected"]
SideRows = tuple[Kind, str, pa.Table]


@dataclass
class SideOutputs:
    """Rows of a chunk that do not leave by its output, and the counts of its steps; DuckDB has the chunk as INPUT."""

    program: Program
    rows: pa.Table
    late_before_us: int | None
    counts: dict[str, dict[str, int]]
    side_rows: list[SideRows]

    @property
    def on_time(self) -> str:
        """The condition that a row is not late; TRUE if no row of these can be."""
        return f"epoch_us({TIME}) >= {self.late_before_us}" if self._may_be_late else "TRUE"

    def account(self, out: pa.Table, used: int) -> Any:
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
                newest, kept = _one(f"SELECT max({TIME}), count(*) FROM ({so_far})")
                self._reject_timeless(number, rows - kept)
            else:
                (kept,) = (end,) if number == droppers[-1] else _one(f"SELECT count(*) FROM ({so_far})")
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
        rows = engine.query(f"SELECT * FROM ({before}) WHERE {usable(quote(column), times)} IS NOT TRUE")
        self._reject(self.program.chain[number].node, rows, time_reasons(column, rows.column(column), times))

    def _reject_failed(self, step: Step, before: str, where: str = "TRUE") -> int:
        """Reject the rows on which an expression of a step fails."""
        found = engine.query(failed_rows(step.attempts, f"({before})", where))
        texts = reasons(step.attempts)
        if found.num_rows:
            rows = found.drop_columns([name for name in found.column_names if name.startswith(INTERNAL)])
            self._reject(step.node, rows, [texts[why] for why in found.column(WHY).to_pylist()])
        return int(found.num_rows)

    def _reject_inputs(self) -> int:
        """Reject the rows that are on time, but fail in the aggregate."""
        if self.program.inputs is None:
            return 0
        return self._reject_failed(self.program.inputs, compose(self.program.chain), self.on_time)

    def _reject(self, node: str, rows: pa.Table, why: list[str]) -> None:
        self.side_rows.append(("rejected", node, rows.append_column(REASON, pa.array(why, pa.string()))))
        self._count(node, rejected=rows.num_rows)

    def _divert_late(self) -> int:
        node, all_rows = self.program.late_node, compose(self.program.chain)
        assert node is not None
        late = f"epoch_us({TIME}) < {self.late_before_us}"
        table = engine.query(f"SELECT * EXCLUDE ({TIME}) FROM ({all_rows}) WHERE {late}")
        if table.num_rows:
            self.side_rows.append(("late", node, table))
            self._count(node, late=table.num_rows)
        return int(table.num_rows)

    def _count(self, node: str, **counted: int) -> None:
        mine = self.counts.setdefault(node, {})
        for name, count in counted.items():
            mine[name] = mine.get(name, 0) + count


def _one(sql: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = engine.connection().sql(sql).fetchall()[0]
    return found
