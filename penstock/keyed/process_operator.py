"""The operator of a process function: takes rows of many keys and the state of their bucket, returns rows and state.

A key's rows are processed in their order, then its timers that are due, in the order of their times. When the function
raises on a row, the key's state is rolled back: it is loaded again and the rows since then run again. So rows that
succeed have no extra cost, and what a function changed in place is undone too.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadEmit, FunctionFailed, PenstockError
from penstock.keyed.arrow_rows import Row, by_key, key_texts, rows_of, values
from penstock.keyed.outputs import MAIN, Outputs, OutputSchema, TypeMismatch, output_schemas
from penstock.keyed.process_state import Entry, KeyStates, entry_rows
from penstock.keyed.store.bucket_store import BucketStore
from penstock.keyed.store.groups import NEVER
from penstock.keyed.store.hashes import group_hashes
from penstock.process import Context, Declared, Process, Timer, declared, time_of
from penstock.signatures import raised, row_class
from penstock.state import Current
from penstock.windows import FIRST_US, LAST_US

_HINT = 'fix the function, or reject such rows: Pipeline(..., rejected_to=sink) or on_error="reject"'


@dataclass(frozen=True)
class ProcessOperator:
    """A process function and the columns of its input; `time` is the column of event times, if there is one."""

    process: Process
    keys: tuple[str, ...]
    names: tuple[str, ...]
    time: str | None
    rejects: bool
    label: str

    @cached_property
    def declared(self) -> Declared:
        """What the process declares."""
        return declared(self.process)

    @cached_property
    def outputs(self) -> tuple[OutputSchema, ...]:
        """The outputs, the main one first."""
        return output_schemas(self.declared)

    @cached_property
    def row_type(self) -> type | None:
        """The dataclass that the function takes rows as, if its annotation names one."""
        return row_class(self.process.on_row)

    def run(
        self, rows: pa.Table, store: BucketStore, watermark_us: int, now_us: int, *, ended: bool = False
    ) -> ProcessResult:
        """Process the rows of one bucket; with `ended`, timers that are set now do not fire."""
        ended = ended or watermark_us >= LAST_US
        try:
            return _Invocation(self, store, watermark_us, now_us, ended=ended).run(rows)
        except TypeMismatch:
            # Again, checking each row when it is emitted, so that the effects of bad rows are undone.
            return _Invocation(self, store, watermark_us, now_us, ended=ended, checks_rows=True).run(rows)

    def state_of(self, store: BucketStore, key: Row, watermark_us: int = FIRST_US, now_us: int = 0) -> dict[str, Any]:
        """Return the state of a key that has not expired, by attribute; for inspection."""
        touched = store.read(group_hashes([pa.array([value]) for value in key.values()], 1))
        states = KeyStates(touched.tables)
        (position,) = states.find(key_texts([key]))
        if position is None:
            return {}
        _, values, expiry, _ = pickle.loads(states.data(position))
        expired_us = _expired_us(self, watermark_us, now_us)
        expired = {name for name, at in expiry.items() if expired_us is not None and at <= expired_us}
        return {
            name: self.declared.states[name].unpacked(value) for name, value in values.items() if name not in expired
        }


@dataclass
class ProcessResult:
    """The result of an invocation: rows by output with their times, the bucket with the new state, rejected rows."""

    tables: dict[str, tuple[pa.Table, list[int]]]
    store: BucketStore
    refused: list[tuple[str, Row]] = field(default_factory=list)


class _Invocation:
    """One call of the operator."""

    def __init__(
        self,
        operator: ProcessOperator,
        store: BucketStore,
        watermark_us: int,
        now_us: int,
        *,
        ended: bool = False,
        checks_rows: bool = False,
    ) -> None:
        self.operator, self.store, self.states = operator, store, KeyStates(None)
        self.watermark_us, self.now_us = watermark_us, now_us
        self.ended = ended
        self.declared = operator.declared
        self.current = Current()
        self.process = self._bound()
        self.ctx = Context(timed=operator.time is not None, has_timers=self.declared.has_timers)
        self.ctx._at, self.ctx._watermark_us, self.ctx._now_us = self.current, watermark_us, now_us
        self.outputs = Outputs(operator.outputs, checks_rows=checks_rows)
        self.special = {name: spec for name, spec in self.declared.states.items() if not spec.plain}
        self.clock_us = watermark_us if operator.time else now_us
        self.expired_us = _expired_us(operator, watermark_us, now_us)
        self.refused: list[tuple[str, Row]] = []
        self.entries: list[Entry] = []

    def run(self, rows: pa.Table) -> ProcessResult:
        """Process every key that has rows or a timer to fire."""
        table, firsts = by_key(rows, self.operator.keys)
        first_rows = table.take(pa.array(firsts[:-1], pa.int64()))
        heads = rows_of(first_rows, self.operator.keys)
        texts = key_texts(heads)
        hashes = group_hashes([first_rows.column(name) for name in self.operator.keys], len(heads))
        touched = self.store.read(np.concatenate([hashes, self.store.due(self.watermark_us, self.now_us)]))
        self.states = KeyStates(touched.tables)
        positions = self.states.find(texts)
        given = _InputRows(self.operator, table, self.now_us)
        numbered = enumerate(zip(hashes.tolist(), texts, heads, positions, strict=True))
        for number, (one, text, head, position) in numbered:
            self._key(one, text, head, position, given, firsts[number], firsts[number + 1])
        # The other keys are due, or have the hash of one that is.
        for position in sorted({*range(len(self.states))} - {*positions}):
            one, text = int(touched.row_hashes[0][position]), self.states.key(position)
            self._key(one, text, None, position, given, 0, 0)
        store = self.store.replaced(touched, [entry_rows(self.entries)], self.expired_us)
        tables = {output.name: (output.table(), output.times) for output in self.outputs.all() if output.rows}
        return ProcessResult(tables, store, self.refused)

    def _key(
        self, hashed: int, text: str, head: Row | None, position: int | None, given: _InputRows, start: int, stop: int
    ) -> None:
        before = None if position is None else self.states.data(position)
        self._load(before, head)
        if start < stop:
            (self._batch if self.declared.batches else self._rows)(before, given, start, stop)
        self._fire_due_timers()
        self._expire()
        self._store(hashed, text)

    # --- rows -----------------------------------------------------------------------------------

    def _rows(self, before: Any, given: _InputRows, start: int, stop: int) -> None:
        on_row, ctx, current, add = self.process.on_row, self.ctx, self.current, self.outputs.add
        first = start
        for position, (row, time_us) in enumerate(given.between(start, stop), start):
            current.time_us = time_us
            try:
                made = on_row(row, ctx)
                if made is not None:
                    add(made, time_us)
            except Exception as error:  # user code may raise anything
                self._reject(error, given, position, position + 1)
                before, first = self._roll_back(before, given, first, position), position + 1

    def _roll_back(self, before: Any, given: _InputRows, start: int, stop: int) -> bytes:
        """Restore the state before the row at `stop`."""
        self._load(before, self.ctx.key)
        for row, time_us in given.original(start, stop):
            self.current.time_us = time_us
            try:
                list(self.process.on_row(row, self.ctx) or ())
            except Exception as error:  # user code may raise anything
                message = f"it raised on a row that it processed before: {type(error).__name__}: {error}"
                hint = "a process function must do the same for the same rows and state"
                raise FunctionFailed(message, node=self.operator.label, hint=hint) from error
        return self._packed()

    def _batch(self, before: Any, given: _InputRows, start: int, stop: int) -> None:
        self.current.time_us = max(given.times[start:stop])
        try:
            made = self.process.on_rows(given.batch(start, stop), self.ctx)
            self.outputs.add(made or (), self.current.time_us)
        except Exception as error:  # user code may raise anything
            self._reject(error, given, start, stop)
            self._load(before, self.ctx.key)

    def _reject(self, error: Exception, given: _InputRows, start: int, stop: int) -> None:
        rows = rows_of(given.table.slice(start, stop - start), self.operator.names)
        if not self.operator.rejects:
            method = self.process.on_rows if self.declared.batches else self.process.on_row
            raise self._failed(method, error, f"the input row was {rows[0]}") from error
        self.refused += [(f"{type(error).__name__}: {error}", row) for row in rows]

    # --- timers ---------------------------------------------------------------------------------

    def _fire_due_timers(self) -> None:
        """Fire due timers, and those set meanwhile; at the end of input not the latter, or it might never end."""
        timers = self.ctx._timers
        if not timers:
            return
        ended = self.ended
        due = self._due()
        while due:
            _, at, name = due.pop(0)
            if timers.get(name, (None,))[0] == at:
                self._fire(Timer(time_of(at), name, timers.pop(name)[1]), at)
            due = due if ended else self._due()
        if ended:
            for _, _, name in self._due():
                del timers[name]

    def _due(self) -> list[tuple[bool, int, str]]:
        limits = {"event": self.watermark_us, "processing": self.now_us}
        timers = self.ctx._timers.items()
        return sorted((clock != "event", at, name) for name, (at, clock) in timers if at <= limits[clock])

    def _fire(self, timer: Timer, at: int) -> None:
        self.ctx._fired = timer
        current = self.current
        current.time_us, current.timed = (at, True) if timer.clock == "event" else self._clock()
        try:
            made = self.process.on_timer(timer, self.ctx)
            self.outputs.add(made or (), current.time_us)
        except Exception as error:  # user code may raise anything
            what = f"the key was {self.ctx.key}, the timer {timer}"
            raise self._failed(self.process.on_timer, error, what) from error
        self.ctx._fired, current.timed = None, True

    def _clock(self) -> tuple[int, bool]:
        """Return the time of rows that a processing-time timer emits, and whether it is valid."""
        return self.clock_us, self.expired_us is not None

    # --- state ----------------------------------------------------------------------------------

    def _bound(self) -> Process:
        """Return a copy of the process with the states of the current key."""
        process = copy.copy(self.operator.process)
        for name, spec in self.declared.states.items():
            vars(process)[name] = spec.handle(spec, name, self.current)
        return process

    def _load(self, data: Any, head: Row | None) -> None:
        key, values, expiry, timers = (None, {}, {}, {}) if data is None else pickle.loads(data)
        for name in values.keys() - self.declared.states.keys():
            values.pop(name, None)
            expiry.pop(name, None)
        for name, spec in self.special.items():
            if name in values:
                values[name] = spec.unpacked(values[name])
        self.current.values, self.current.expiry, self.ctx._timers = values, expiry, timers
        self.ctx.key = dict(zip(self.operator.keys, key, strict=True)) if head is None else head

    def _packed(self) -> bytes:
        values = self.current.values
        if self.special:
            values = values | {name: spec.packed(values[name]) for name, spec in self.special.items() if name in values}
        return pickle.dumps((tuple(self.ctx.key.values()), values, self.current.expiry, self.ctx._timers), 5)

    def _expire(self) -> None:
        """Delete state that no later row or timer can see.

        After the rows of this epoch: they may be older than its watermark, though not than that of the epoch before.
        """
        if self.expired_us is None:
            return
        values, expiry = self.current.values, self.current.expiry
        for name in [name for name, at in expiry.items() if at <= self.expired_us]:
            values.pop(name, None)
            del expiry[name]

    def _store(self, hashed: int, text: str) -> None:
        values, expiry, timers = self.current.values, self.current.expiry, self.ctx._timers
        if not values and not timers:
            return
        event_timer = min((at for at, clock in timers.values() if clock == "event"), default=NEVER)
        processing_timer = min((at for at, clock in timers.values() if clock != "event"), default=NEVER)
        expires = max(expiry.values()) if expiry and not timers and values.keys() <= expiry.keys() else NEVER
        self.entries.append((hashed, text, self._packed(), event_timer, processing_timer, expires))

    def _failed(self, method: Callable[..., Any], error: Exception, what: str) -> FunctionFailed:
        made = f"emitted an invalid row: {error.message}" if isinstance(error, BadEmit) else f"raised {raised(error)}"
        hint = "fix the function" if method == self.process.on_timer else _HINT
        own = f"{error.hint}\n  " if isinstance(error, PenstockError) and error.hint else ""
        return FunctionFailed(f"{method.__qualname__} {made}; {what}", node=self.operator.label, hint=f"{own}{hint}")


def _expired_us(operator: ProcessOperator, watermark_us: int, now_us: int) -> int | None:
    """Return the time up to which state has expired for all later rows; None before the first watermark."""
    if operator.time is None:
        return now_us
    return watermark_us if watermark_us > FIRST_US else None


class _InputRows:
    """The input rows of an invocation, grouped by key, as the function takes them."""

    def __init__(self, operator: ProcessOperator, table: pa.Table, now_us: int) -> None:
        self.table, self.names = table, operator.names
        self.row_type = operator.row_type
        times = table.column(operator.time).cast(pa.int64()) if operator.time else None
        self.times: list[int] = [now_us] * table.num_rows if times is None else values(times)
        self._all: list[Any] | None = None

    def between(self, start: int, stop: int) -> Iterator[tuple[Any, int]]:
        """Yield rows with their times."""
        if self._all is None:
            self._all = self._converted(self.table)
        return zip(self._all[start:stop], self.times[start:stop], strict=True)

    def original(self, start: int, stop: int) -> Iterator[tuple[Any, int]]:
        """Yield rows as they arrived: the function may have changed the ones it was called with."""
        return zip(self._converted(self.table.slice(start, stop - start)), self.times[start:stop], strict=True)

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Return rows as one batch."""
        return self.table.slice(start, stop - start).select(self.names).to_batches()[0]

    def _converted(self, table: pa.Table) -> list[Any]:
        rows = rows_of(table, self.names)
        make: Callable[..., Any] | None = self.row_type
        return rows if make is None else [make(**row) for row in rows]


__all__ = ["MAIN", "ProcessOperator", "ProcessResult"]
