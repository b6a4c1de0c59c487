"""JSON lines of which most are laid out alike, as rows: their values are taken from where the layout says they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.binary_text import decoded
from penstock.connectors.epoch_numbers import ZONED, instants_of_text
from penstock.connectors.json_layout import Layout, Marked, Span
from penstock.connectors.text_columns import NAIVE, instants, overflowed, plain_times
from penstock.schema import Schema

Parse = Callable[[bytes], pa.RecordBatch]

FEW = 16 << 10
# Larger pieces leave the cache before NumPy has gone over them all, smaller ones cost more in calls.
PIECE = 2 << 20
# So many pieces in a row that are not laid out alike, and no further one is tried.
_PATIENCE = 8


class Alike:
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
        """Return one row per line, or None if too few are laid out alike or there is any doubt about them."""
        text = Marked(data if data.endswith(b"\n") else data + b"\n")
        for layout in (self._layout, Layout.of(text.data[: text.data.find(b"\n")])):
            found = layout and (self._typed(layout, layout.all(text)) or self._divided(layout, text))
            if found:
                self._layout, self._misses = layout, 0
                return found
        self._misses += 1
        return None

    def _divided(self, layout: Layout, text: Marked) -> pa.RecordBatch | None:
        """Return the rows of lines of which most have a layout; the parser reads the others."""
        spans, alike = layout.most(text) or (None, None)
        read = self._typed(layout, spans)
        if read is None or alike is None or alike.all():
            return read
        places = np.concatenate([np.flatnonzero(alike), np.flatnonzero(~alike)])
        both = pa.concat_batches([read, self._parse(text.lines(~alike))])
        return both.take(pa.array(np.argsort(places))) if both.num_rows == len(places) else None

    def _typed(self, layout: Layout, spans: Sequence[Span] | None) -> pa.RecordBatch | None:
        """Return the values in their types, or None if one does not surely fit."""
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
    """Cut whole lines into pieces of whole lines."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", min(at + PIECE, len(data)) - 1) + 1 or len(data)
        yield data[at:end]
        at = end


def _column(span: Span, quoted: bool, kind: pa.DataType) -> pa.Array | None:
    """Return a value of all lines in its type; None, or ArrowInvalid, if one does not surely fit."""
    if pa.types.is_decimal(kind):
        texts = span.texts() if quoted else span.numbers()
        return None if texts is None else texts.cast(pa.decimal256(76, kind.scale)).cast(kind)
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
    """Return something if a value that nobody asks for is surely well-formed."""
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
