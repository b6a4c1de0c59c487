"""Process functions in unit tests: the operator that Spark's tasks run, without Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.durations import Span, Time, instant, micros
from penstock.errors import BadValue, UnknownColumn, choices
from penstock.keyed.arrow_rows import Row, rows_of
from penstock.keyed.process_operator import MAIN, ProcessOperator
from penstock.keyed.store.bucket_store import BucketStore
from penstock.process import LATE, Process, declared, micros_of, time_of
from penstock.windows import ALL_TIMES

_TIME = "__penstock_time"


class ProcessTester:
    """Runs a process function on rows; the test controls time, and each call is one epoch.

    `send` processes rows, `advance_time` moves the watermark and `advance_clock` the processing time; `take` returns
    the rows emitted since it was last called. Rows older than the watermark are late: `take("late")`.

    >>> import penstock as ps
    >>> class Count(ps.Process):
    ...     output = "user string, n bigint"
    ...     seen = ps.state.value(int)
    ...     def on_row(self, row, ctx):
    ...         self.seen.set(self.seen.get(0) + 1)
    ...         yield {**ctx.key, "n": self.seen.get()}
    >>> t = ProcessTester(Count(), key="user")
    >>> t.send({"user": "ann"}, {"user": "bob"}, {"user": "ann"})
    >>> t.take()
    [{'user': 'ann', 'n': 1}, {'user': 'ann', 'n': 2}, {'user': 'bob', 'n': 1}]
    >>> t.state("ann")
    {'seen': 2}
    """

    def __init__(self, process: Process | type[Process], *, key: str | Sequence[str], event_time: str | None = None):
        self.process = process() if isinstance(process, type) else process
        self.keys = (key,) if isinstance(key, str) else tuple(key)
        self.event_time = event_time
        self.now = datetime(2000, 1, 1, tzinfo=UTC)
        self._watermark_us = ALL_TIMES.first_us if event_time else 0
        self._state: bytes | None = None
        self._declared = declared(self.process)
        self._emitted: dict[str, list[Row]] = {name: [] for name in (MAIN, LATE, *self._declared.sides)}

    def send(self, *rows: Any) -> None:
        """Process rows, as one epoch."""
        table = pa.Table.from_pylist([one if isinstance(one, dict) else dataclasses.asdict(one) for one in rows])
        for name in (*self.keys, *([self.event_time] if self.event_time else [])):
            if name not in table.column_names:
                message = f"the rows have no column '{name}'"
                raise UnknownColumn(message, node="send", hint=choices("columns", table.column_names, name))
        self._run(self._without_late_rows(table))

    def advance_time(self, to: Time) -> None:
        """Move the watermark, and fire the timers that are due by it."""
        if self.event_time is None:
            message = "there is no event time"
            raise BadValue(message, node="advance_time", hint='write ProcessTester(..., event_time="ts")')
        self._watermark_us = max(self._watermark_us, micros_of(instant(to, "advance_time")))
        self._run(None)

    def advance_clock(self, by: Span) -> None:
        """Move the processing time, and fire the timers that are due by it."""
        self.now = time_of(micros_of(self.now) + micros(by, "advance_clock"))
        self._run(None)

    def take(self, output: str | None = None) -> list[Row]:
        """Return the rows of an output since the last call."""
        name = output or MAIN
        if name not in self._emitted:
            message = f"{type(self.process).__name__} has no output '{name}'"
            raise BadValue(message, node="take", hint=choices("outputs", self._emitted, name))
        taken, self._emitted[name] = self._emitted[name], []
        return taken

    def state(self, *key: Any) -> dict[str, Any]:
        """Return the state of a key that has not expired, by attribute; empty if there is none."""
        store, of = BucketStore.of(self._state), dict(zip(self.keys, key, strict=True))
        return self._operator(self.keys).state_of(store, of, self._watermark_us, micros_of(self.now))

    def _run(self, table: pa.Table | None) -> None:
        if table is None:
            columns = [(name, pa.null()) for name in self.keys]
            table = pa.schema([*columns, (_TIME, pa.timestamp("us", "UTC"))]).empty_table()
        operator = self._operator(tuple(name for name in table.column_names if name != _TIME))
        result = operator.run(table, BucketStore.of(self._state), self._watermark_us, micros_of(self.now))
        self._state = result.store.finished(epoch=0)
        for name, (rows, _) in result.tables.items():
            self._emitted[name] += rows_of(rows, rows.column_names)

    def _operator(self, names: tuple[str, ...]) -> ProcessOperator:
        time = _TIME if self.event_time else None
        return ProcessOperator(self.process, self.keys, names, time, rejects=False, label=type(self.process).__name__)

    def _without_late_rows(self, table: pa.Table) -> pa.Table:
        """Add the event times, and move late rows to their output."""
        if self.event_time is None:
            return table
        table = table.append_column(_TIME, table.column(self.event_time).cast(pa.timestamp("us", "UTC")))
        # Before the first watermark no row is late, however old it is.
        first_us = self._watermark_us or np.iinfo(np.int64).min
        late = pc.less(table.column(_TIME).cast(pa.int64()), first_us)
        names = [name for name in table.column_names if name != _TIME]
        self._emitted[LATE] += rows_of(table.filter(late), names)
        return table.filter(pc.invert(late))
