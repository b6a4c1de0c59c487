"""The schema for Arrow's JSON reader, and the conversion of its result to the declared types, at any depth.

The reader has no bytes, dates or maps: it reads them as texts and lists, which are converted here. Documents that it
cannot read at all are rewritten line by line, which is slow: NaN and infinities become bare words, times ISO-8601 to
the microsecond, and an object that is a map becomes a list of pairs. Numbers keep their digits, duplicate keys stay.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.encoder import encode_basestring as _quoted
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.arrow_types import contains_type
from penstock.connectors.formats.epoch_times import ZONED, epoch_text, instants_of
from penstock.connectors.formats.json.encodings import NON_FINITE, decoded, wide_decimal
from penstock.connectors.formats.text_columns import convert, instants, plain_times

KEY, VALUE = "key", "value"
DUPLICATE_KEY = "duplicate map key"
_FRACTION = re.compile(r"(\d\.\d{6})\d+")
# Numbers that may be times, long fractions, small letters, and escapes, which may hide any of them.
_TIME = re.compile(rb'[:\[,][ \t\r]*-?(\d{9}|\d+(\.\d+)?e|0)|\d\.\d{7}|\d[tz]["\d]|\\u', re.IGNORECASE)
_MARKS = tuple(f'{name}"'.encode() for name in ("NaN", "Infinity"))
# Not a list, because Arrow would read a list of pairs as a map.
_NO_MAP = "0"


def wire(kind: pa.DataType, times: pa.DataType) -> pa.DataType:
    """Return the type that the reader is asked for; `times` is how instants are written."""
    if kind == ZONED:
        return times
    if pa.types.is_date(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_floating(kind):
        # A number that is too large for a double is refused; one that is too large for less would be infinity.
        return pa.float64()
    if pa.types.is_decimal(kind):
        return wide_decimal(kind)
    if pa.types.is_list(kind):
        return pa.list_(wire(kind.value_type, times))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, wire(part.type, times)) for part in kind])
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([(KEY, pa.string()), (VALUE, wire(kind.item_type, times))]))
    return kind


def typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what the reader gave in its type; raise ArrowInvalid if a value does not fit."""
    if values.type == kind:
        return values
    if pa.types.is_list(kind):
        parts = typed(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, parts, type=kind, mask=values.is_null())
    if pa.types.is_struct(kind):
        parts = [typed(values.field(n), part.type) for n, part in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        return _map(values, kind)
    if pa.types.is_binary(kind):
        return decoded(values)
    if pa.types.is_timestamp(kind):
        return _times(values, kind)
    return values.cast(kind)


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type):
        return instants_of(values)
    return instants(values) if kind == ZONED else plain_times(values).cast(kind)


def _map(values: pa.ListArray, kind: pa.MapType) -> pa.Array:
    texts = values.values.field(KEY)
    keys = decoded(texts) if pa.types.is_binary(kind.key_type) else convert(texts, kind.key_type)
    _refuse_same_keys(keys, pc.list_parent_indices(values))
    items = typed(values.values.field(VALUE), kind.item_type)
    return pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=values.is_null())


def _refuse_same_keys(keys: pa.Array, rows: pa.Array) -> None:
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = rows.to_numpy(zero_copy_only=False).astype(np.int64) * (codes.max(initial=0) + 1) + codes
    if len(np.unique(pairs)) < len(pairs):
        raise pa.ArrowInvalid(DUPLICATE_KEY)


def holds_interval(kind: pa.DataType) -> bool:
    """Return whether a span of time is in a type, which JSON has no form for."""
    return contains_type(kind, pa.types.is_duration)


def holds_nested_key(kind: pa.DataType) -> bool:
    """Return whether a map in a type has keys that are no plain values."""
    return contains_type(kind, lambda one: pa.types.is_map(one) and pa.types.is_nested(one.key_type))


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The pairs of an object, as they were written."""


@dataclass(frozen=True)
class _Kind:
    """A type, prepared for checks of each value in Python: Arrow's own checks take a microsecond each."""

    is_map: bool
    is_float: bool
    is_time: bool
    is_instant: bool
    inner: _Kind | None
    fields: dict[str, _Kind]

    @classmethod
    def of(cls, kind: pa.DataType) -> _Kind:
        inner = kind.item_type if pa.types.is_map(kind) else kind.value_type if pa.types.is_list(kind) else None
        return cls(
            pa.types.is_map(kind),
            pa.types.is_floating(kind),
            pa.types.is_timestamp(kind),
            kind == ZONED,
            None if inner is None else cls.of(inner),
            {part.name: cls.of(part.type) for part in kind} if pa.types.is_struct(kind) else {},
        )


_ANY = _Kind.of(pa.null())


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, object_pairs_hook=_Object)


class DocumentRewriter:
    """Rewrites the lines of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        kind = pa.struct(list(schema))
        self._kind = _Kind.of(kind)
        self.always = contains_type(kind, pa.types.is_map)
        self.instants = contains_type(kind, lambda one: bool(one == ZONED))
        self._floats, self._times = (
            contains_type(kind, pa.types.is_floating),
            contains_type(kind, pa.types.is_timestamp),
        )

    def concerns(self, body: bytes) -> bool:
        """Return whether lines may have something to rewrite."""
        numbers = self._floats and any(mark in body for mark in _MARKS)
        return self.always or numbers or self.unusual_times(body)

    def unusual_times(self, body: bytes) -> bool:
        """Return whether lines may contain times that Arrow's reader does not take."""
        return self._times and _TIME.search(body) is not None

    def rewritten(self, body: bytes) -> bytes:
        """Return the lines as Arrow's reader takes them; raise ArrowInvalid if one with maps is no JSON."""
        return b"\n".join(map(self._line, body.split(b"\n")))

    def _line(self, line: bytes) -> bytes:
        if not self.concerns(line):
            return line
        try:
            return _text(_DECODER.decode(line.decode()), self._kind).encode()
        except (ValueError, RecursionError) as error:
            if self.always:
                message = f"not JSON: {error}"
                raise pa.ArrowInvalid(message) from error
            # The parser finds out what is wrong with it.
            return line


def _text(value: Any, kind: _Kind) -> str:
    if isinstance(value, _Number):
        time = epoch_text(value) if kind.is_instant else None
        return value if time is None else f'"{time}"'
    if isinstance(value, str):
        return _string(value, kind)
    if isinstance(value, _Object):
        return _pairs(value, kind.inner or _ANY) if kind.is_map else _object(value, kind.fields)
    if isinstance(value, list):
        inner = kind.inner or _ANY
        return _NO_MAP if kind.is_map else f"[{', '.join([_text(part, inner) for part in value])}]"
    return json.dumps(value)


def _object(pairs: _Object, kinds: dict[str, _Kind]) -> str:
    return f"{{{', '.join([f'{_quoted(name)}: {_text(value, kinds.get(name, _ANY))}' for name, value in pairs])}}}"


def _pairs(pairs: _Object, kind: _Kind) -> str:
    texts = [f'{{"{KEY}": {_quoted(key)}, "{VALUE}": {_text(value, kind)}}}' for key, value in pairs]
    return f"[{', '.join(texts)}]"


def _string(value: str, kind: _Kind) -> str:
    if kind.is_float and value in NON_FINITE:
        return value
    if kind.is_time and value.isascii():
        return _quoted(_FRACTION.sub(r"\1", value.upper(), count=1))
    return _quoted(value)
