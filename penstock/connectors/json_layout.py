"""JSON lines that are all laid out alike, taken apart with NumPy: more than twice as fast as a JSON parser.

Programs write the same keys in the same order, so the first line tells where the values of all others are: between
texts that do not change. A block is read this way only if each line has these texts to the byte and each value is
surely what a parser would find there; at the least doubt the answer is None, and a parser decides.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_TEXT = rb'[^"\\\x00-\x1f]*'
_PAIR = re.compile(rb' *"(?P<key>' + _TEXT + rb')" *: *(?:"(?P<text>' + _TEXT + rb')"|(?P<bare>[^][{}",\s]+)) *')
_END = re.compile(rb"\}\r?")
# A parser refuses what a double cannot hold, whatever the column's type: this many digits and exponents it can.
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?$"
_DIGITS = 100
_WORD = 8


@dataclass(frozen=True)
class _Fixed:
    """A text that is in each line; its place follows from that of its first mark."""

    text: bytes
    mark: int
    offset: int


@dataclass(frozen=True)
class _Value:
    """What stands between two fixed texts: the key it belongs to, and whether it is in quotes."""

    key: str
    quoted: bool


class Marked:
    """Whole lines, and where their marks are: quotes and control characters, and backslashes if there is one."""

    def __init__(self, data: bytes) -> None:
        self.data, self.raw, self.escaped = data, np.frombuffer(data, np.uint8), b"\\" in data
        self.marks = _marks(self.raw, self.escaped)

    @cached_property
    def last(self) -> Places:
        """Which mark ends each line."""
        return np.flatnonzero(self.raw[self.marks] == ord("\n"))

    @cached_property
    def first(self) -> Places:
        """Which mark is the first of each line."""
        return np.concatenate([[0], self.last[:-1] + 1])

    @cached_property
    def starts(self) -> Places:
        """Where each line begins."""
        return np.concatenate([[0], self.marks[self.last[:-1]] + 1])

    def lines(self, chosen: Bools) -> bytes:
        """Return some of the lines."""
        offsets = pa.py_buffer(np.append(self.starts, len(self.data)).astype(np.int32))
        lines = pa.Array.from_buffers(pa.binary(), len(chosen), [None, offsets, pa.py_buffer(self.data)])
        return b"".join(lines.filter(pa.array(chosen)).to_pylist())


class Layout:
    """Where the values of a line are, learned from one line.

    Invariant: quotes and control characters ("marks") are in the fixed texts only, so in a line that has as many
    marks as its fixed texts, and these in their order, no value holds one.
    """

    def __init__(self, values: Sequence[_Value], texts: Sequence[bytes]) -> None:
        self.values = tuple(values)
        counts = [len(_marks(np.frombuffer(text, np.uint8))) for text in texts]
        before = itertools.accumulate(counts, initial=0)
        first = [int(_marks(np.frombuffer(text, np.uint8))[0]) for text in texts]
        self._fixed = [_Fixed(*parts) for parts in zip(texts, before, first, strict=False)]
        self._marks = sum(counts)

    @classmethod
    def of(cls, line: bytes) -> Layout | None:
        r"""Return the layout of a line without its line feed, or None if it has no simple one.

        >>> [value.key for value in Layout.of(b'{"a": 1, "b": "x"}').values]
        ['a', 'b']
        """
        values, texts, at, end = list[_Value](), list[bytes](), 0, 0
        while line[end : end + 1] == (b"," if values else b"{") and (pair := _PAIR.match(line, end + 1)):
            start, stop = pair.span("bare" if pair["text"] is None else "text")
            values.append(_Value(pair["key"].decode(), pair["text"] is not None))
            texts.append(line[at:start])
            at, end = stop, pair.end()
        if not values or not _END.fullmatch(line, end) or len({value.key for value in values}) < len(values):
            return None
        return cls(values, [*texts, line[at:] + b"\n"])

    def all(self, text: Marked) -> list[Span] | None:
        """Return the places of each value, or None unless all lines are laid out so."""
        if text.escaped or len(text.marks) % self._marks:
            return None
        rows = text.marks.reshape(-1, self._marks)
        return self._spans(text, rows, np.concatenate([[0], rows[:-1, -1] + 1]))

    def most(self, text: Marked) -> tuple[list[Span], Bools] | None:
        """Return the places of each value, and in which lines, if more than half of them are laid out so."""
        alike = text.last - text.first + 1 == self._marks
        if np.count_nonzero(alike) <= len(alike) / 2:
            return None
        rows = text.marks[text.first[alike][:, None] + np.arange(self._marks)]
        spans = self._spans(text, rows, text.starts[alike])
        return None if spans is None else (spans, alike)

    def _spans(self, text: Marked, rows: Places, lines: Places) -> list[Span] | None:
        """Return where the values are between the fixed texts, given the marks of lines and where they start."""
        starts = [rows[:, fixed.mark] - fixed.offset for fixed in self._fixed]
        ends = [start + len(fixed.text) for start, fixed in zip(starts, self._fixed, strict=True)]
        if (starts[0] != lines).any() or any((start < end).any() for start, end in zip(starts[1:], ends, strict=False)):
            return None
        if not all(_holds(text.raw, at, fixed.text) for at, fixed in zip(starts, self._fixed, strict=True)):
            return None
        return [Span(text, start, stop) for start, stop in zip(ends, starts[1:], strict=False)]


@dataclass(frozen=True)
class Span:
    """The places of one value in lines."""

    text: Marked
    start: Places
    stop: Places

    def texts(self) -> pa.Array:
        """Return the values as they stand there."""
        count = len(self.start)
        offsets = np.zeros(2 * count + 1, np.int32)
        offsets[1::2], offsets[2::2] = self.start, self.stop
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.text.data)]
        gaps_and_values = pa.Array.from_buffers(pa.string(), 2 * count, buffers)
        return gaps_and_values.take(pa.array(np.arange(1, 2 * count, 2, dtype=np.int32)))

    def numbers(self) -> pa.Array | None:
        """Return the texts of numbers, a `null` as null; None if one is no number as JSON has them."""
        if (self.stop - self.start).max() > _DIGITS:
            return None
        texts = self.texts()
        # A leading digit but zero and a digit at the end leave no way to differ, but for an exponent.
        first = self.text.raw[self.start]
        first = self.text.raw[self.start + (first == ord("-"))]
        odd = np.flatnonzero(((first - ord("1")) > 8) | ((self.text.raw[self.stop - 1] - ord("0")) > 9))
        written = (texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes()
        closer = texts if b"e" in written or b"E" in written else texts.take(pa.array(odd))
        if not len(closer):
            return texts
        nothing = pc.equal(closer, "null")
        if not pc.all(pc.or_(nothing, pc.match_substring_regex(closer, _NUMBER))).as_py():
            return None
        return pc.if_else(pc.equal(texts, "null"), None, texts) if pc.any(nothing).as_py() else texts


def _marks(raw: Bytes, escapes: bool = False) -> Places:
    found = raw == ord('"')
    found |= raw < ord(" ")
    if escapes:
        found |= raw == ord("\\")
    return np.flatnonzero(found)


def _holds(raw: Bytes, start: Places, text: bytes) -> bool:
    """Say whether a text stands at all these places, eight bytes at a time where it is long enough."""
    if len(text) < _WORD:
        return all((raw[start + n] == byte).all() for n, byte in enumerate(text))
    words: npt.NDArray[np.uint64] = np.ndarray((len(raw) - _WORD + 1,), "<u8", raw.data, 0, (1,))
    last = len(text) - _WORD
    steps = [*range(0, last, _WORD), last]
    return all((words[start + n] == int.from_bytes(text[n : n + _WORD], "little")).all() for n in steps)
