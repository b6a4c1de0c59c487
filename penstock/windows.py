"""Windows: how a keyed stream is cut into groups that end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.durations import Span, micros, span_text
from penstock.errors import BadWindow

WindowKind = Literal["tumbling", "sliding", "session"]


@dataclass(frozen=True)
class Window:
    """A window over event time; lengths are in microseconds."""

    kind: WindowKind
    size_us: int
    slide_us: int
    offset_us: int = 0

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
        if self.kind == "session":
            return f"session(gap={span_text(self.size_us)})"
        slide = "" if self.kind == "tumbling" else f", {span_text(self.slide_us)}"
        offset = f", offset={span_text(self.offset_us)}" if self.offset_us else ""
        return f"{self.kind}({span_text(self.size_us)}{slide}{offset})"


def tumbling(size: Span, *, offset: Span = "0s") -> Window:
    """Cut time into windows of one size, one after the other.

    >>> print(tumbling("60s"))
    tumbling(1m)
    """
    size_us = _length(size, "size")
    return Window("tumbling", size_us, size_us, _offset(offset, size_us))


def sliding(size: Span, slide: Span, *, offset: Span = "0s") -> Window:
    """Cut time into windows of one size that begin every `slide`, so that they overlap."""
    size_us, slide_us = _length(size, "size"), _length(slide, "slide")
    if slide_us > size_us:
        message = f"slide {span_text(slide_us)} is longer than size {span_text(size_us)}"
        raise BadWindow(message, node="sliding", hint="rows between two windows would be lost")
    return Window("sliding", size_us, slide_us, _offset(offset, slide_us))


def session(gap: Span) -> Window:
    """Group what follows one another by less than `gap`."""
    gap_us = _length(gap, "gap")
    return Window("session", gap_us, gap_us)


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
        raise BadWindow(message, node="window", hint="an offset moves where windows begin, by less than one")
    return offset
