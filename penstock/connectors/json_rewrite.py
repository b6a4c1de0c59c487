"""JSON documents as Arrow's reader takes them, line by line: slow, so only what it cannot read otherwise comes here.

NaN and infinities become bare, times ISO-8601 to the microsecond, and an object that is a map a list of its pairs.
Numbers keep their digits, and a key that is there twice stays there twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.connectors.epoch_numbers import ZONED, epoch_text
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


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Say whether a type passes a test, or one inside it does."""
    return test(kind) or any(holds(kind.field(n).type, test) for n in range(kind.num_fields))


class Rewriter:
    """Rewrites the lines of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._kind = pa.struct(list(schema))
        self.always = holds(self._kind, pa.types.is_map)
        self.instants = holds(self._kind, lambda kind: kind == ZONED)
        self._floats, self._times = holds(self._kind, pa.types.is_floating), holds(self._kind, pa.types.is_timestamp)

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
            document = json.loads(line.decode(), parse_float=_Number, parse_int=_Number, object_pairs_hook=_Object)
            return _text(document, self._kind).encode()
        except (ValueError, RecursionError) as error:
            if self.always:
                message = f"not JSON: {error}"
                raise pa.ArrowInvalid(message) from error
            # The parser finds out what is wrong with it.
            return line


def _text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, _Object):
        return _pairs(value, kind) if pa.types.is_map(kind) else _object(value, kind)
    if isinstance(value, _Number):
        time = epoch_text(value) if kind == ZONED else None
        return value if time is None else f'"{time}"'
    if isinstance(value, str):
        return _string(value, kind)
    if isinstance(value, list):
        return _NO_MAP if pa.types.is_map(kind) else _list(value, kind)
    return json.dumps(value)


def _object(pairs: _Object, kind: pa.DataType) -> str:
    kinds = {part.name: part.type for part in kind} if pa.types.is_struct(kind) else {}
    texts = (f"{_quoted(name)}: {_text(value, kinds.get(name, pa.null()))}" for name, value in pairs)
    return f"{{{', '.join(texts)}}}"


def _pairs(pairs: _Object, kind: pa.DataType) -> str:
    texts = (f'{{"{KEY}": {_quoted(key)}, "{VALUE}": {_text(value, kind.item_type)}}}' for key, value in pairs)
    return f"[{', '.join(texts)}]"


def _list(values: list[Any], kind: pa.DataType) -> str:
    inner = kind.value_type if pa.types.is_list(kind) else pa.null()
    return f"[{', '.join(_text(value, inner) for value in values)}]"


def _string(value: str, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind) and value in NON_FINITE:
        return value
    if pa.types.is_timestamp(kind) and value.isascii():
        return _quoted(_FRACTION.sub(r"\1", value.upper(), count=1))
    return _quoted(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
