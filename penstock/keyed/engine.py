"""One turn of a process function: rows of many keys and the state of their bucket in, rows and state out.

A key's rows come in their order, then its timers that are due, in the order of their times. When the function raises
on a row, the key's state becomes what it was before: it is read again and the rows since then are run again, so that
nothing is spent on the many rows that go well, and what a function changed in place is undone too.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import BadEmit, FunctionFailed, PenstockError
from penstock.functions import raised, row_class
from penstock.keyed.columns import Row, by_key, key_texts, rows_of, values
from penstock.keyed.outputs import MAIN, Outputs, Shape, Unfit, shapes
from penstock.keyed.store import NEVER, Entry, Store
from penstock.process import Context, Declared, Process, Timer, declared, time_of
from penstock.state import Current
from penstock.windows import FIRST_US, LAST_US

_HINT = 'fix the function, or reject such rows: Pipeline(..., rejected_to=sink) or on_error="reject"'


@dataclass(frozen=True)
class Keyed:
    """A process function and the stream that it is given; `time` is the column of event times, if there is one."""

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
    def shapes(self) -> tuple[Shape, ...]:
        """The outputs, the main one first."""
        return shapes(self.declared)

    @cached_property
    def takes(self) -> type | None:
        """The dataclass that rows are given as, if the function says so."""
        return row_class(self.process.on_row)

    def turn(
        self, rows: pa.Table, state: bytes | None, watermark_us: int, now_us: int, *, ended: bool = False
    ) -> Turned:
        """Run the function over the rows of one bucket; with `ended`, no timer that is set now fires."""
        ended = ended or watermark_us >= LAST_US
        try:
            return _Turn(self, Store(state), watermark_us, now_us, ended=ended).run(rows)
        except Unfit:
            # Again, with each row checked when it is given: so what the bad ones did is undone.
            return _Turn(self, Store(state), watermark_us, now_us, ended=ended, careful=True).run(rows)

    def held(self, state: bytes | None, key: str, watermark_us: int = FIRST_US, now_us: int = 0) -> dict[str, Any]:
        """Return what is stored for a key and has not expired, by attribute; for those who look from outside."""
        (place,) = (store := Store(state)).find([key])
        if place is None:
            return {}
        _, kept, expiry, _ = pickle.loads(store.data(place))
        expired_us = _expired_us(self, watermark_us, now_us)
        gone = {name for name, at in expiry.items() if expired_us is not None and at <= expired_us}
        return {name: self.declared.states[name].unpacked(held) for name, held in kept.items() if name not in gone}


@dataclass
class Turned:
    """What a turn gave: rows by output with their times, the state, when it wants another turn, and refused rows."""

    tables: dict[str, tuple[pa.Table, list[int]]]
    state: bytes | None
    due_us: int | None
    rings_us: int | None
    refused: list[tuple[str, Row]] = field(default_factory=list)


class _Turn:
    """One turn in the making."""

    def __init__(
        self, keyed: Keyed, store: Store, watermark_us: int, now_us: int, *, ended: bool = False, careful: bool = False
    ) -> None:
        self.keyed, self.store = keyed, store
        self.watermark_us, self.now_us = watermark_us, now_us
        self.ended = ended
        self.declared = keyed.declared
        self.current = Current()
        self.process = self._bound()
        self.ctx = Context(timed=keyed.time is not None, rings=self.declared.rings)
        self.ctx._at, self.ctx._watermark_us, self.ctx._now_us = self.current, watermark_us, now_us
        self.outputs = Outputs(keyed.shapes, careful=careful)
        self.special = {name: spec for name, spec in self.declared.states.items() if not spec.plain}
        self.clock_us = watermark_us if keyed.time else now_us
        self.expired_us = _expired_us(keyed, watermark_us, now_us)
        self.refused: list[tuple[str, Row]] = []
        self.fresh: list[Entry] = []

    def run(self, rows: pa.Table) -> Turned:
        """Take every key that has rows or a timer to fire."""
        table, firsts = by_key(rows, self.keyed.keys)
        heads = rows_of(table.take(pa.array(firsts[:-1], pa.int64())), self.keyed.keys)
        texts = key_texts(heads)
        places = self.store.find(texts)
        given = _Given(self.keyed, table, self.now_us)
        for number, (text, head, place) in enumerate(zip(texts, heads, places, strict=True)):
            self._key(text, head, place, given, firsts[number], firsts[number + 1])
        touched = {place for place in places if place is not None}
        ringing = [place for place in self.store.due(self.watermark_us, self.now_us) if place not in touched]
        for place in ringing:
            self._key(self.store.batch.column(0)[place].as_py(), None, place, given, 0, 0)
        return self._turned([*touched, *ringing], changed=bool(texts or ringing))

    def _turned(self, places: list[int], *, changed: bool) -> Turned:
        store = self.store.replaced(places, self.fresh, self.expired_us) if changed else self.store
        tables = {output.name: (output.table(), output.times) for output in self.outputs.all() if output.rows}
        return Turned(tables, store.bytes(), store.next_due, store.next_ring, self.refused)

    def _key(self, text: str, head: Row | None, place: int | None, given: _Given, start: int, stop: int) -> None:
        before = None if place is None else self.store.data(place)
        self._load(before, head)
        if start < stop:
            (self._batch if self.declared.batches else self._rows)(before, given, start, stop)
        self._ring()
        self._expire()
        self._keep(text)

    # --- rows -----------------------------------------------------------------------------------

    def _rows(self, before: Any, given: _Given, start: int, stop: int) -> None:
        on_row, ctx, current, take = self.process.on_row, self.ctx, self.current, self.outputs.take
        begin = start
        for place, (row, time_us) in enumerate(given.between(start, stop), start):
            current.time_us = time_us
            try:
                made = on_row(row, ctx)
                if made is not None:
                    take(made, time_us)
            except Exception as error:
                self._refuse(error, given, place, place + 1)
                before, begin = self._again(before, given, begin, place), place + 1

    def _again(self, before: Any, given: _Given, start: int, stop: int) -> bytes:
        """Bring the state back to what it was before the row at `stop`."""
        self._load(before, self.ctx.key)
        for row, time_us in given.anew(start, stop):
            self.current.time_us = time_us
            try:
                list(self.process.on_row(row, self.ctx) or ())
            except Exception as error:
                message = f"it raised on a row that it took before: {type(error).__name__}: {error}"
                hint = "a process function must do the same for the same rows and state"
                raise FunctionFailed(message, node=self.keyed.label, hint=hint) from error
        return self._packed()

    def _batch(self, before: Any, given: _Given, start: int, stop: int) -> None:
        self.current.time_us = max(given.times[start:stop])
        try:
            made = self.process.on_rows(given.batch(start, stop), self.ctx)
            self.outputs.take(made or (), self.current.time_us)
        except Exception as error:
            self._refuse(error, given, start, stop)
            self._load(before, self.ctx.key)

    def _refuse(self, error: Exception, given: _Given, start: int, stop: int) -> None:
        rows = rows_of(given.table.slice(start, stop - start), self.keyed.names)
        if not self.keyed.rejects:
            method = self.process.on_rows if self.declared.batches else self.process.on_row
            raise self._failed(method, error, f"the input row was {rows[0]}") from error
        self.refused += [(f"{type(error).__name__}: {error}", row) for row in rows]

    # --- timers ---------------------------------------------------------------------------------

    def _ring(self) -> None:
        """Fire what is due, what is set meanwhile too; but at the end of time that would never end."""
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
            self.outputs.take(made or (), current.time_us)
        except Exception as error:
            what = f"the key was {self.ctx.key}, the timer {timer}"
            raise self._failed(self.process.on_timer, error, what) from error
        self.ctx._fired, current.timed = None, True

    def _clock(self) -> tuple[int, bool]:
        """Return the time of a processing-time timer, and whether that is the time of anything."""
        return self.clock_us, self.expired_us is not None

    # --- state ----------------------------------------------------------------------------------

    def _bound(self) -> Process:
        """Return a copy of the process whose states are those of the current key."""
        process = copy.copy(self.keyed.process)
        for name, spec in self.declared.states.items():
            vars(process)[name] = spec.handle(spec, name, self.current)
        return process

    def _load(self, data: Any, head: Row | None) -> None:
        kept, held, expiry, timers = (None, {}, {}, {}) if data is None else pickle.loads(data)
        for name in held.keys() - self.declared.states.keys():
            held.pop(name, None)
            expiry.pop(name, None)
        for name, spec in self.special.items():
            if name in held:
                held[name] = spec.unpacked(held[name])
        self.current.values, self.current.expiry, self.ctx._timers = held, expiry, timers
        self.ctx.key = dict(zip(self.keyed.keys, kept, strict=True)) if head is None else head

    def _packed(self) -> bytes:
        held = self.current.values
        if self.special:
            held = held | {name: spec.packed(held[name]) for name, spec in self.special.items() if name in held}
        return pickle.dumps((tuple(self.ctx.key.values()), held, self.current.expiry, self.ctx._timers), 5)

    def _expire(self) -> None:
        """Delete what no later row or timer can see.

        Not before the rows of this epoch: they may be older than its watermark, if not than that of the one before.
        """
        if self.expired_us is None:
            return
        values, expiry = self.current.values, self.current.expiry
        for name in [name for name, at in expiry.items() if at <= self.expired_us]:
            values.pop(name, None)
            del expiry[name]

    def _keep(self, text: str) -> None:
        held, expiry, timers = self.current.values, self.current.expiry, self.ctx._timers
        if not held and not timers:
            return
        due = min((at for at, clock in timers.values() if clock == "event"), default=NEVER)
        rings = min((at for at, clock in timers.values() if clock != "event"), default=NEVER)
        expires = max(expiry.values()) if expiry and held.keys() <= expiry.keys() else NEVER
        self.fresh.append(Entry(text, self._packed(), due, rings, expires))

    def _failed(self, method: Callable[..., Any], error: Exception, what: str) -> FunctionFailed:
        made = f"gave what does not fit: {error.message}" if isinstance(error, BadEmit) else f"raised {raised(error)}"
        hint = "fix the function" if method == self.process.on_timer else _HINT
        own = f"{error.hint}\n  " if isinstance(error, PenstockError) and error.hint else ""
        return FunctionFailed(f"{method.__qualname__} {made}; {what}", node=self.keyed.label, hint=f"{own}{hint}")


def _expired_us(keyed: Keyed, watermark_us: int, now_us: int) -> int | None:
    """Return the time by which state has expired for all rows to come; None before there is a watermark."""
    if keyed.time is None:
        return now_us
    return watermark_us if watermark_us > FIRST_US else None


class _Given:
    """The rows of a turn, those of a key together, as the function takes them."""

    def __init__(self, keyed: Keyed, table: pa.Table, now_us: int) -> None:
        self.table, self.names = table, keyed.names
        self.takes = keyed.takes
        times = table.column(keyed.time).cast(pa.int64()) if keyed.time else None
        self.times: list[int] = [now_us] * table.num_rows if times is None else values(times)
        self._all: list[Any] | None = None

    def between(self, start: int, stop: int) -> Iterator[tuple[Any, int]]:
        """Yield rows with their times."""
        if self._all is None:
            self._all = self._shaped(self.table)
        return zip(self._all[start:stop], self.times[start:stop], strict=True)

    def anew(self, start: int, stop: int) -> Iterator[tuple[Any, int]]:
        """Yield rows as they came in: the function may have changed those that it was given."""
        return zip(self._shaped(self.table.slice(start, stop - start)), self.times[start:stop], strict=True)

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Return rows as one batch."""
        return self.table.slice(start, stop - start).select(self.names).to_batches()[0]

    def _shaped(self, table: pa.Table) -> list[Any]:
        rows = rows_of(table, self.names)
        make: Callable[..., Any] | None = self.takes
        return rows if make is None else [make(**row) for row in rows]


__all__ = ["MAIN", "Keyed", "Turned"]
