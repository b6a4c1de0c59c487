"""The schema of JSON documents, by a sample of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from penstock.plan.sql_expressions.types import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, VOID, Type, array, struct
from penstock.schema import Field, Schema

SAMPLED = 1_000
_DEEPEST = 10
_MOST_FIELDS = 500
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_LARGEST = 2**63
_NUMBERS = {BIGINT.name, DOUBLE.name}


def infer_schema(payloads: Iterable[bytes | None]) -> Schema | None:
    """Return the columns of JSON objects; None if most payloads are none. A field that is always null is a string.

    >>> infer_schema([b'{"price": 1, "at": "2026-01-01T00:00:00Z"}', b'{"price": 1.5, "tags": ["a"]}'])
    Schema('price double, at timestamp, tags array<string>')
    """
    given = [payload for payload in payloads if payload is not None]
    documents = [found for payload in given if isinstance(found := _document(payload), dict)]
    if not documents or 2 * len(documents) < len(given):
        return None
    kind = _common([_type(document, 0) for document in documents])
    pairs = list(zip(kind.fields, kind.parts, strict=True))[:_MOST_FIELDS]
    return Schema(tuple(Field(name, str(_known(part))) for name, part in pairs)) if pairs else None


def _document(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _type(value: Any, depth: int) -> Type:
    if value is None or depth > _DEEPEST:
        return VOID if value is None else STRING
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT if -_LARGEST <= value < _LARGEST else DOUBLE
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, str):
        return TIMESTAMP if _TIME.fullmatch(value) else STRING
    if isinstance(value, list):
        return array(_common([_type(part, depth + 1) for part in value]))
    return struct((name, _type(part, depth + 1)) for name, part in value.items())


def _common(kinds: list[Type]) -> Type:
    """Return the type of a field: the wider number, the fields of all objects; else what most documents have."""
    names = Counter(kind.name for kind in kinds if kind != VOID)
    if not names:
        return VOID
    if set(names) <= _NUMBERS:
        return DOUBLE if DOUBLE.name in names else BIGINT
    if set(names) == {STRING.name, TIMESTAMP.name}:
        return STRING
    name = names.most_common(1)[0][0]
    chosen = [kind for kind in kinds if kind.name == name]
    if name == "array":
        return array(_common([kind.parts[0] for kind in chosen]))
    if name == "struct":
        fields: dict[str, list[Type]] = {}
        for kind in chosen:
            for field, part in zip(kind.fields, kind.parts, strict=True):
                fields.setdefault(field, []).append(part)
        return struct((field, _common(parts)) for field, parts in _distinct(fields).items())
    return chosen[0]


def _distinct(fields: dict[str, list[Type]]) -> dict[str, list[Type]]:
    """Return the fields without those that differ from an earlier one in case only, which SQL cannot tell apart."""
    first: dict[str, str] = {}
    for name in fields:
        first.setdefault(name.casefold(), name)
    return {name: fields[name] for name in first.values()}


def _known(kind: Type) -> Type:
    """Return a type in which what is always null is a string."""
    if kind == VOID:
        return STRING
    if kind.name == "struct" and not kind.parts:
        return STRING
    parts = tuple(map(_known, kind.parts))
    return Type(kind.name, parts, kind.fields, kind.size)
