"""Windows: how the rows of a stream are grouped by time or by count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from penstock.durations import Span, micros, span_text
from penstock.errors import BadWindow, choices

WindowKind = Literal["tumbling", "sliding", "session", "count", "global"]
WindowClock = Literal["event", "processing"]

# The range of all times, from the year 1 to the end of 9997. The watermark of the end of input is END_US, a year later.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_339_228_800_000_000
YEAR_US = 365 * 86_400_000_000
END_US = LAST_US + YEAR_US


class TimeRange(NamedTuple):
    """Event times from `first_us`, before `end_us`."""

    first_us: int
    end_us: int


# The valid range of event times, unless a plan narrows it: a year is left at either end for windows and delays.
ALL_TIMES = TimeRange(FIRST_US + YEAR_US, END_US - YEAR_US)


@dataclass(frozen=True)
class Window:
    """A window over time, with lengths in microseconds; or over rows, with lengths in rows.

    `max_us` is the longest that a session may become. `clock` is the time that counts: the row's own, or that of the
    epoch that reads it.
    """

    kind: WindowKind
    size_us: int
    slide_us: int
    offset_us: int = 0
    max_us: int | None = None
    clock: WindowClock = "event"

    @property
    def timed(self) -> bool:
        """Whether it is a span of time."""
        return self.kind != "count"

    @property
    def by_event_time(self) -> bool:
        """Whether it ends with event time, so that rows can be late."""
        return self.timed and self.clock == "event"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that identify a window of a key."""
        return ("window_start", "window_end") if self.timed else ("window_number",)

    def late_before(self, watermark_us: int) -> int:
        """Return the first time that still has a window which ends after the watermark.

        >>> tumbling("10s").late_before(25_000_000)
        20000000
        """
        if self.kind == "session":
            return watermark_us - self.size_us + 1
        # The last window of a row begins at the step at or before it, so the bound is a step too.
        steps = (watermark_us - self.size_us - self.offset_us) // self.slide_us + 1
        return steps * self.slide_us + self.offset_us

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self._arguments())})"

    def _arguments(self) -> list[str]:
        clock = [f"clock={self.clock}"] if self.clock != "event" else []
        if self.kind == "global":
            return clock
        text = str if self.kind == "count" else span_text
        if self.kind == "session":
            longest = [f"max_length={text(self.max_us)}"] if self.max_us else []
            return [f"gap={text(self.size_us)}", *longest, *clock]
        slide = [] if self.slide_us == self.size_us and self.kind != "sliding" else [text(self.slide_us)]
        offset = [f"offset={text(self.offset_us)}"] if self.offset_us else []
        return [text(self.size_us), *slide, *offset, *clock]


def tumbling(size: Span, *, offset: Span = "0s", clock: WindowClock = "event") -> Window:
    """Cut time into windows of one size, one after the other.

    >>> print(tumbling("60s"))
    tumbling(1m)
    """
    size_us = _length(size, "size")
    return _on(clock, Window("tumbling", size_us, size_us, _offset(offset, size_us)))


def sliding(size: Span, slide: Span, *, offset: Span = "0s", clock: WindowClock = "event") -> Window:
    """Cut time into windows of one size that begin every `slide`, so that they overlap."""
    size_us, slide_us = _length(size, "size"), _length(slide, "slide")
    if slide_us > size_us:
        message = f"slide {span_text(slide_us)} is longer than size {span_text(size_us)}"
        raise BadWindow(message, node="sliding", hint="rows between two windows would be lost")
    return _on(clock, Window("sliding", size_us, slide_us, _offset(offset, slide_us)))


def session(gap: Span, *, max_length: Span | None = None, clock: WindowClock = "event") -> Window:
    """Group what follows one another by at most `gap`.

    With `max_length` a session ends that long after its first row at the latest: the next row begins a new one.

    >>> print(session("30s", max_length="1h"))
    session(gap=30s, max_length=1h)
    """
    gap_us = _length(gap, "gap")
    max_us = None if max_length is None else _length(max_length, "max_length")
    if max_us is not None and max_us < gap_us:
        message = f"max_length {span_text(max_us)} is shorter than gap {span_text(gap_us)}"
        raise BadWindow(message, node="session", hint="a session of one row is as long as its gap")
    return _on(clock, Window("session", gap_us, gap_us, max_us=max_us))


def count_window(n: int, slide: int | None = None) -> Window:
    """Group every `n` rows of a key; with `slide`, a window of `n` rows begins at every `slide`-th row.

    >>> print(count_window(100, 10))
    count(100, 10)
    """
    step = n if slide is None else slide
    for what, number in (("n", n), ("slide", step)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            message = f"{what}={number!r} is not a number of rows"
            raise BadWindow(message, node="count_window", hint="pass a whole number from 1")
    if step > n:
        message = f"slide {step} is more than n {n}"
        raise BadWindow(message, node="count_window", hint="rows between two windows would be lost")
    return Window("count", n, step)


def global_window() -> Window:
    """Put all rows of a key into one window, which ends with the input.

    >>> print(global_window())
    global()
    """
    always = LAST_US - FIRST_US
    return Window("global", always, always, FIRST_US % always)


def _on(clock: WindowClock, window: Window) -> Window:
    if clock not in get_args(WindowClock):
        message = f"clock={clock!r} is not known"
        raise BadWindow(message, node=window.kind, hint=choices("clocks", get_args(WindowClock), str(clock)))
    return replace(window, clock=clock)


def _length(span: Span, what: str) -> int:
    length = micros(span, what)
    if length < 1000:
        message = f"{what} {span!r} is too short"
        raise BadWindow(message, node="window", hint="the shortest window is 1ms")
    return length


def _offset(span: Span, step_us: int) -> int:
    offset = micros(span, "offset")
    if offset >= step_us:
        message = f"offset {span_text(offset)} is not shorter than the window's step {span_text(step_us)}"
        raise BadWindow(message, node="window", hint="an offset shifts the start of windows, by less than one window")
    return offset
