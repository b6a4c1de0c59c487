"""Process functions: Python with state and timers over the rows of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa

from penstock.durations import Time, instant
from penstock.errors import BadProcess, BadTimer, choices
from penstock.schema import Schema, Shape
from penstock.signatures import check_call
from penstock.state import Spec

Clock = Literal["event", "processing"]
Emits = Iterable[Any] | None
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATE = "late"


class Process:
    """A function over the rows of each key, with state, timers and named outputs.

    Declare `output` (the columns of the rows that it yields), `sides` (those of further outputs) and states as
    attributes; write `on_row` for one row at a time, or `on_rows` for an Arrow batch of one key's rows. They yield
    rows, or `("side", row)`. `on_timer` is called when a timer that they set is due.

    >>> import penstock as ps
    >>> class Count(ps.Process):
    ...     output = "user string, n bigint"
    ...     seen = ps.state.value(int)
    ...     def on_row(self, row, ctx):
    ...         self.seen.set(self.seen.get(0) + 1)
    ...         yield {**ctx.key, "n": self.seen.get()}
    """

    output: ClassVar[Shape]
    sides: ClassVar[Mapping[str, Shape]] = {}

    def on_row(self, row: Any, ctx: Context) -> Emits:
        """Take one row; yield any number of rows."""
        raise NotImplementedError

    def on_rows(self, rows: pa.RecordBatch, ctx: Context) -> Emits:
        """Take all rows of one key in one epoch; yield any number of rows."""
        raise NotImplementedError

    def on_timer(self, timer: Timer, ctx: Context) -> Emits:
        """Take a timer that is due; yield any number of rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class Timer:
    """A timer of one key: its time, its name and its clock."""

    at: datetime
    name: str = ""
    clock: Clock = "event"


class Context:
    """The context of a call: key, times and timers of the current row or timer.

    Invariant: it belongs to one call; a function must not store it.
    """

    __slots__ = ("_at", "_fired", "_has_timers", "_now_us", "_timed", "_timers", "_watermark_us", "key")

    def __init__(self, *, timed: bool, has_timers: bool) -> None:
        self._timed, self._has_timers = timed, has_timers
        self.key: dict[str, Any] = {}
        self._at: Any = None
        self._timers: dict[str, tuple[int, Clock]] = {}
        self._fired: Timer | None = None
        self._watermark_us = self._now_us = 0

    @property
    def event_time(self) -> datetime | None:
        """The time of the row, of the newest of a batch, or of the timer; the watermark for a processing-time timer."""
        return time_of(self._at.time_us) if self._timed else None

    @property
    def watermark(self) -> datetime | None:
        """The watermark of this epoch; None before the first, and without event time."""
        return time_of(self._watermark_us) if self._timed and self._watermark_us else None

    @property
    def now(self) -> datetime:
        """When this epoch started: the same on every attempt."""
        return time_of(self._now_us)

    def set_timer(self, at: Time, name: str = "", *, clock: Clock = "event") -> None:
        """Set a timer, for which `on_timer` is called; a key has one of each name, and setting it again replaces it."""
        self._check(clock)
        us = micros_of(instant(at, "timer"))
        if clock == "event":
            first = self._at.time_us + bool(self._fired and self._fired.clock == "event")
        else:
            first = self._now_us + bool(self._fired and self._fired.clock == "processing")
        if us < first:
            message = f"timer {name!r} at {time_of(us).isoformat()} is in the past"
            raise BadTimer(message, hint=f"the earliest possible time is {time_of(first).isoformat()}")
        self._timers[name] = (us, clock)

    def cancel_timer(self, name: str = "") -> None:
        """Cancel the timer of that name, if it is set."""
        self._timers.pop(name, None)

    def _check(self, clock: str) -> None:
        if clock not in get_args(Clock):
            message = f"clock={clock!r} is not known"
            raise BadTimer(message, hint=choices("clock", map(repr, get_args(Clock))))
        if not self._has_timers:
            message = "a timer is set, and the class has no on_timer"
            raise BadTimer(message, hint="write `def on_timer(self, timer, ctx)`")
        if clock == "event" and not self._timed:
            message = "a timer uses event time, and the stream has none"
            raise BadTimer(message, hint='call .event_time(...) before key_by(), or set_timer(..., clock="processing")')


def time_of(us: int) -> datetime:
    """Return a time from its microseconds since 1970."""
    return EPOCH + timedelta(microseconds=us)


def micros_of(time: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Declared:
    """The declarations of a process, checked."""

    output: Schema
    sides: dict[str, Schema]
    states: dict[str, Spec[Any]]
    batches: bool
    has_timers: bool


def declared(process: Process) -> Declared:
    """Return the declarations of a process; raise BadProcess if one is invalid."""
    kind = type(process)
    label = f"process '{kind.__name__}'"
    methods = [name for name in ("on_row", "on_rows") if _overrides(kind, name)]
    if len(methods) != 1:
        message = "it has neither on_row nor on_rows" if not methods else "it has both on_row and on_rows"
        raise BadProcess(message, node=label, hint="write one: `def on_row(self, row, ctx)` yields rows")
    if not hasattr(kind, "output"):
        message = "the schema of its rows is missing"
        raise BadProcess(message, node=label, hint='add `output = "name string, n bigint"`')
    sides = {name: Schema(shape) for name, shape in kind.sides.items()}
    wrong = [name for name in sides if name in (LATE, "main") or not name.isidentifier()]
    if wrong:
        message = f"invalid name {wrong[0]!r} of a side output"
        raise BadProcess(message, node=label, hint=f"use another identifier; '{LATE}' has the late rows")
    has_timers = _overrides(kind, "on_timer")
    check_call(getattr(process, methods[0]), ("row" if methods[0] == "on_row" else "batch", "ctx"), label)
    if has_timers:
        check_call(process.on_timer, ("timer", "ctx"), label)
    if not has_timers and _mentions(getattr(kind, methods[0]), "set_timer"):
        message = "it sets timers, and has no on_timer"
        raise BadProcess(message, node=label, hint="write `def on_timer(self, timer, ctx)`")
    return Declared(Schema(kind.output), sides, states(kind), methods[0] == "on_rows", has_timers)


def states(kind: type[Process]) -> dict[str, Spec[Any]]:
    """Return the states that a process has, by attribute."""
    found = {name: one for base in reversed(kind.__mro__) for name, one in vars(base).items()}
    return {name: one for name, one in found.items() if isinstance(one, Spec)}


def _overrides(kind: type[Process], name: str) -> bool:
    return getattr(kind, name) is not getattr(Process, name)


def _mentions(function: Callable[..., Any], name: str) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and name in code.co_names
