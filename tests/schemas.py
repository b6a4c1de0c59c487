"""Random schemas and rows that fit them, for property tests."""

from __future__ import annotations

from datetime import UTC
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.schema import Schema

Values = st.SearchStrategy[Any]
Typed = tuple[str, Values]

_EXACT = Context(prec=76)
_FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e22, 123456789.123456789])
_TIMES = st.datetimes()
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(["null", "", "\n", '"', "\\u"])
_INTEGERS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_PLAIN: dict[str, Values] = {
    "string": _TEXTS,
    "binary": st.binary(max_size=6),
    "boolean": st.booleans(),
    "double": _FLOATS,
    "float": st.floats(width=32),
    "date": st.dates(),
    "timestamp": _TIMES.map(lambda time: time.replace(tzinfo=UTC)),
    "timestamp_ntz": _TIMES,
    **{name: st.integers(-(1 << bits), (1 << bits) - 1) for name, bits in _INTEGERS.items()},
}


def _decimal(precision: int, scale: int) -> Typed:
    most = 10**precision - 1
    values = st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, _EXACT))
    return f"decimal({precision},{scale})", values


_DECIMALS = [_decimal(5, 2), _decimal(38, 18), _decimal(38, 0), _decimal(18, 18)]


def _array(part: Typed) -> Typed:
    return f"array<{part[0]}>", st.lists(st.none() | part[1], max_size=3)


def _struct(parts: list[Typed]) -> Typed:
    names = [f"f{number}" for number in range(len(parts))]
    kinds = ",".join(f"{name}:{kind}" for name, (kind, _) in zip(names, parts, strict=True))
    rows = st.fixed_dictionaries({name: st.none() | part[1] for name, part in zip(names, parts, strict=True)})
    return f"struct<{kinds}>", rows


def _map(part: Typed) -> st.SearchStrategy[Typed]:
    keys = st.sampled_from([("string", _TEXTS), ("int", st.integers(0, 9)), ("date", _PLAIN["date"])])
    return keys.map(lambda key: (f"map<{key[0]},{part[0]}>", _pairs(key[1], part[1])))


def _pairs(keys: Values, values: Values) -> Values:
    return st.lists(st.tuples(keys, st.none() | values), max_size=3, unique_by=lambda pair: pair[0])


def types(*, maps: bool) -> st.SearchStrategy[Typed]:
    """Types with values of theirs: plain ones, and such within arrays, structs and, if asked for, maps."""
    plain = st.sampled_from([*_PLAIN.items(), *_DECIMALS])

    def nested(parts: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
        made = parts.map(_array) | st.lists(parts, min_size=1, max_size=3).map(_struct)
        return made | parts.flatmap(_map) if maps else made

    return st.recursive(plain, nested, max_leaves=4)


def batches(*, maps: bool) -> st.SearchStrategy[tuple[Schema, pa.RecordBatch]]:
    """A schema, and a few rows of it."""

    def rows(kinds: list[Typed]) -> Values:
        schema = Schema({f"c{number}": kind for number, (kind, _) in enumerate(kinds)})
        made = st.fixed_dictionaries({f"c{number}": st.none() | values for number, (_, values) in enumerate(kinds)})
        arrow = schema.nullable().arrow
        found = st.lists(made, min_size=1, max_size=4)
        return found.map(lambda rows: (schema, pa.RecordBatch.from_pylist(rows, schema=arrow)))

    return st.lists(types(maps=maps), min_size=1, max_size=3).flatmap(rows)
