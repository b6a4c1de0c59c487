"""The fast path for JSON lines with the same layout: NumPy finds the values, more than twice as fast as a parser.

Programs write the same keys in the same order, so the first line shows where the values of all others are: between
texts that do not change. A block is read this way only if each line has exactly these texts and each value is certainly
what a parser would find; in case of doubt the result is None, and a parser reads the lines.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.epoch_times import ZONED, instants_of_text
from penstock.connectors.formats.json.encodings import decoded, wide_decimal
from penstock.connectors.formats.text_columns import NAIVE, instants, overflowed, plain_times
from penstock.schema import Schema

Bytes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
_TEXT = rb'[^"\\\x00-\x1f]*'
_PAIR = re.compile(rb' *"(?P<key>' + _TEXT + rb')" *: *(?:"(?P<text>' + _TEXT + rb')"|(?P<bare>[^][{}",\s]+)) *')
_END = re.compile(rb"\}\r?")
# A parser refuses what a double cannot represent, whatever the column's type: this many digits and exponents it can.
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?$"
_DIGITS = 100
_WORD = 8
Parse = Callable[[bytes], pa.RecordBatch]
FEW = 16 << 10
# Larger pieces leave the cache before NumPy has gone over them all, smaller ones cost more in calls.
PIECE = 2 << 20
# After this many pieces in a row without one layout, no further piece is tried.
_PATIENCE = 8


@dataclass(frozen=True)
class _Fixed:
    """A text that is in each line; its position follows from that of its first delimiter."""

    text: bytes
    delimiter: int
    offset: int


@dataclass(frozen=True)
class _Value:
    """What stands between two fixed texts: the key it belongs to, and whether it is in quotes."""

    key: str
    quoted: bool


class DelimitedLines:
    """Whole lines, and where their delimiters are: quotes and control characters, and backslashes if there is one."""

    def __init__(self, data: bytes) -> None:
        self.data, self.raw, self.escaped = data, np.frombuffer(data, np.uint8), b"\\" in data
        self.delimiters = _delimiters(self.raw, self.escaped)

    @cached_property
    def last(self) -> Places:
        """Which delimiter ends each line."""
        return np.flatnonzero(self.raw[self.delimiters] == ord("\n"))

    @cached_property
    def first(self) -> Places:
        """Which delimiter is the first of each line."""
        return np.concatenate([[0], self.last[:-1] + 1])

    @cached_property
    def starts(self) -> Places:
        """Where each line begins."""
        return np.concatenate([[0], self.delimiters[self.last[:-1]] + 1])

    def lines(self, chosen: Bools) -> bytes:
        """Return some of the lines."""
        offsets = pa.py_buffer(np.append(self.starts, len(self.data)).astype(np.int32))
        lines = pa.Array.from_buffers(pa.binary(), len(chosen), [None, offsets, pa.py_buffer(self.data)])
        return b"".join(lines.filter(pa.array(chosen)).to_pylist())


class Layout:
    """Where the values of a line are, learned from one line.

    Invariant: quotes and control characters ("delimiters") are in the fixed texts only, so in a line that has as many
    delimiters as its fixed texts, and these in their order, no value contains one.
    """

    def __init__(self, values: Sequence[_Value], texts: Sequence[bytes]) -> None:
        self.values = tuple(values)
        counts = [len(_delimiters(np.frombuffer(text, np.uint8))) for text in texts]
        before = itertools.accumulate(counts, initial=0)
        first = [int(_delimiters(np.frombuffer(text, np.uint8))[0]) for text in texts]
        self._fixed = [_Fixed(*parts) for parts in zip(texts, before, first, strict=False)]
        self._delimiters = sum(counts)

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

    def all(self, text: DelimitedLines) -> list[Span] | None:
        """Return the positions of each value, or None unless all lines are laid out so."""
        if text.escaped or len(text.delimiters) % self._delimiters:
            return None
        rows = text.delimiters.reshape(-1, self._delimiters)
        return self._spans(text, rows, np.concatenate([[0], rows[:-1, -1] + 1]))

    def most(self, text: DelimitedLines) -> tuple[list[Span], Bools] | None:
        """Return the positions of each value, and in which lines, if more than half of them are laid out so."""
        alike = text.last - text.first + 1 == self._delimiters
        if np.count_nonzero(alike) <= len(alike) / 2:
            return None
        rows = text.delimiters[text.first[alike][:, None] + np.arange(self._delimiters)]
        spans = self._spans(text, rows, text.starts[alike])
        return None if spans is None else (spans, alike)

    def _spans(self, text: DelimitedLines, rows: Places, lines: Places) -> list[Span] | None:
        """Return where the values are between the fixed texts, given the delimiters of lines and where they start."""
        starts = [rows[:, fixed.delimiter] - fixed.offset for fixed in self._fixed]
        ends = [start + len(fixed.text) for start, fixed in zip(starts, self._fixed, strict=True)]
        if (starts[0] != lines).any() or any((start < end).any() for start, end in zip(starts[1:], ends, strict=False)):
            return None
        if not all(_holds(text.raw, at, fixed.text) for at, fixed in zip(starts, self._fixed, strict=True)):
            return None
        return [Span(text, start, stop) for start, stop in zip(ends, starts[1:], strict=False)]


@dataclass(frozen=True)
class Span:
    """The positions of one value in lines."""

    text: DelimitedLines
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


def _delimiters(raw: Bytes, escapes: bool = False) -> Places:
    found = raw == ord('"')
    found |= raw < ord(" ")
    if escapes:
        found |= raw == ord("\\")
    return np.flatnonzero(found)


def _holds(raw: Bytes, start: Places, text: bytes) -> bool:
    """Return whether a text stands at all these positions, eight bytes at a time where it is long enough."""
    if len(text) < _WORD:
        return all((raw[start + n] == byte).all() for n, byte in enumerate(text))
    words: npt.NDArray[np.uint64] = np.ndarray((len(raw) - _WORD + 1,), "<u8", raw.data, 0, (1,))
    last = len(text) - _WORD
    steps = [*range(0, last, _WORD), last]
    return all((words[start + n] == int.from_bytes(text[n : n + _WORD], "little")).all() for n in steps)


class LayoutReader:
    """Reads lines by their layout, and leaves to a parser what has another.

    A parser's answer is the truth: rows that are read here are those that it would have read, and in its order.
    """

    def __init__(self, schema: Schema, parse: Parse) -> None:
        self._arrow, self._parse = schema.nullable().arrow, parse
        self._types = {field.name: field.type for field in self._arrow}
        self._layout: Layout | None = None
        self._misses = 0

    def read(self, data: bytes) -> pa.RecordBatch:
        """Return one row per line, read by whichever way is faster; raise ArrowInvalid as the parser does."""
        if len(data) < FEW or self._misses >= _PATIENCE:
            return self._parse(data)
        batches = [self.rows(piece) or self._parse(piece) for piece in _pieces(data)]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def rows(self, data: bytes) -> pa.RecordBatch | None:
        """Return one row per line, or None if too few are with the same layout or there is any doubt about them."""
        text = DelimitedLines(data if data.endswith(b"\n") else data + b"\n")
        for layout in (self._layout, Layout.of(text.data[: text.data.find(b"\n")])):
            found = layout and (self._typed(layout, layout.all(text)) or self._divided(layout, text))
            if found:
                self._layout, self._misses = layout, 0
                return found
        self._misses += 1
        return None

    def _divided(self, layout: Layout, text: DelimitedLines) -> pa.RecordBatch | None:
        """Return the rows of lines most of which have the layout; the parser reads the others."""
        spans, alike = layout.most(text) or (None, None)
        read = self._typed(layout, spans)
        if read is None or alike is None or alike.all():
            return read
        positions = np.concatenate([np.flatnonzero(alike), np.flatnonzero(~alike)])
        both = pa.concat_batches([read, self._parse(text.lines(~alike))])
        return both.take(pa.array(np.argsort(positions))) if both.num_rows == len(positions) else None

    def _typed(self, layout: Layout, spans: Sequence[Span] | None) -> pa.RecordBatch | None:
        """Return the values in their types, or None if one does not certainly fit."""
        there: dict[str, pa.Array | None] = {}
        try:
            for value, span in zip(layout.values, spans or (), strict=False):
                kind = self._types.get(value.key)
                fits = _ignored(span, value.quoted) if kind is None else _column(span, value.quoted, kind)
                there[value.key] = fits
        except pa.ArrowInvalid:
            return None
        if not spans or any(values is None for values in there.values()):
            return None
        columns = [
            there[name] if name in there else pa.nulls(len(spans[0].start), kind) for name, kind in self._types.items()
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Cut complete lines into pieces of complete lines."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", min(at + PIECE, len(data)) - 1) + 1 or len(data)
        yield data[at:end]
        at = end


def _column(span: Span, quoted: bool, kind: pa.DataType) -> pa.Array | None:
    """Return a value of all lines in its type; None, or ArrowInvalid, if one does not certainly fit."""
    if pa.types.is_decimal(kind):
        texts = span.texts() if quoted else span.numbers()
        return None if texts is None else texts.cast(wide_decimal(kind)).cast(kind)
    if quoted:
        return _from_text(span.texts(), kind)
    if pa.types.is_boolean(kind):
        return _truth(span.texts())
    if kind == ZONED:
        texts = span.numbers()
        return None if texts is None else instants_of_text(texts)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        texts = span.numbers()
        found = None if texts is None else texts.cast(kind)
        # A number that is too large for the type would be infinity here.
        return None if found is None or overflowed([found]) else found
    return None


def _ignored(span: Span, quoted: bool) -> pa.Array | None:
    """Return something if a value that is not needed is certainly well-formed."""
    return pa.nulls(0) if quoted else _column(span, quoted, pa.float64())


def _from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if pa.types.is_string(kind):
        return texts
    if kind == ZONED:
        try:
            return texts.cast(ZONED)
        except pa.ArrowInvalid:
            return instants(texts)
    if pa.types.is_binary(kind):
        return decoded(texts)
    if pa.types.is_date(kind):
        return texts.cast(kind)
    if kind == NAIVE:
        return plain_times(texts).cast(kind)
    return None


def _truth(texts: pa.Array) -> pa.Array | None:
    true = pc.equal(texts, "true")
    return true if pc.all(pc.or_(true, pc.equal(texts, "false"))).as_py() else None
