"""JSON documents as Arrow's reader takes them, line by line: slow, so only what it cannot read otherwise comes here.

NaN and infinities become bare, times ISO-8601 to the microsecond, and an object that is a map a list of its pairs.
Numbers keep their digits, and a key that is there twice stays there twice.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.encoder import encode_basestring as _quoted
from typing import Any

import pyarrow as pa

from penstock.connectors.epoch_numbers import ZONED, epoch_text
from penstock.connectors.inner_types import holds
from penstock.connectors.json_numbers import NON_FINITE

KEY, VALUE = "key", "value"
_FRACTION = re.compile(r"(\d\.\d{6})\d+")
# Numbers that may be times, long fractions, small letters, and escapes, which may hide any of them.
_TIME = re.compile(rb'[:\[,][ \t\r]*-?(\d{9}|\d+(\.\d+)?e|0)|\d\.\d{7}|\d[tz]["\d]|\\u', re.IGNORECASE)
_MARKS = tuple(f'{name}"'.encode() for name in ("NaN", "Infinity"))
# Something that is no list, for Arrow would take a list of pairs for a map.
_NO_MAP = "0"


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The pairs of an object, as they were written."""


@dataclass(frozen=True)
class _Kind:
    """A type as Python asks for it once per value: Arrow's own answers take a microsecond each."""

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


class Rewriter:
    """Rewrites the lines of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        kind = pa.struct(list(schema))
        self._kind = _Kind.of(kind)
        self.always = holds(kind, pa.types.is_map)
        self.instants = holds(kind, lambda one: bool(one == ZONED))
        self._floats, self._times = holds(kind, pa.types.is_floating), holds(kind, pa.types.is_timestamp)

    def concerns(self, body: bytes) -> bool:
        """Say whether lines may have something to rewrite."""
        numbers = self._floats and any(mark in body for mark in _MARKS)
        return self.always or numbers or self.unusual_times(body)

    def unusual_times(self, body: bytes) -> bool:
        """Say whether lines may hold times that Arrow's reader does not take."""
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
