"""Spark's types, and the type that two of them have in common under ANSI rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import BadSchema
from penstock.schema import ddl_name, parse_type

INTEGERS = ("tinyint", "smallint", "int", "bigint")
_MOST_DIGITS = 38
_DIGITS = dict(zip(INTEGERS, (3, 5, 10, 20), strict=True))
_YEAR_MONTH = ("year", "month")
_DAY_TIME = ("day", "hour", "minute", "second")
_TIMES = {
    frozenset({"date", "timestamp"}): "timestamp",
    frozenset({"date", "timestamp_ntz"}): "timestamp_ntz",
    frozenset({"timestamp", "timestamp_ntz"}): "timestamp",
}


@dataclass(frozen=True)
class Type:
    """A Spark type, taken apart: an array has one part, a map two, a struct one per field.

    >>> str(array(decimal(10, 2)))
    'array<decimal(10,2)>'
    """

    name: str
    parts: tuple[Type, ...] = ()
    fields: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.size[0]},{self.size[1]})"
        if self.name == "struct":
            pairs = zip(self.fields, self.parts, strict=True)
            return f"struct<{','.join(f'{ddl_name(name)}:{part}' for name, part in pairs)}>"
        return f"{self.name}<{','.join(map(str, self.parts))}>" if self.parts else self.name

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number of any width."""
        return self.name in INTEGERS

    @property
    def is_numeric(self) -> bool:
        """Whether it is a number."""
        return self.is_integer or self.name in ("decimal", "float", "double")

    @property
    def is_interval(self) -> bool:
        """Whether it is a span of time."""
        return self.name.startswith("interval ")

    @property
    def is_years(self) -> bool:
        """Whether it is a span of years and months, which have no fixed length."""
        return self.is_interval and self.name.split()[1] in _YEAR_MONTH

    @property
    def has_map(self) -> bool:
        """Whether a map is in it, which Spark cannot compare."""
        return self.name == "map" or any(part.has_map for part in self.parts)


VOID, STRING, BOOLEAN, BINARY = Type("void"), Type("string"), Type("boolean"), Type("binary")
INT, BIGINT, DOUBLE = Type("int"), Type("bigint"), Type("double")
DATE, TIMESTAMP = Type("date"), Type("timestamp")


def array(element: Type) -> Type:
    """Return the type of an array."""
    return Type("array", (element,))


def mapping(key: Type, value: Type) -> Type:
    """Return the type of a map."""
    return Type("map", (key, value))


def struct(fields: Iterable[tuple[str, Type]]) -> Type:
    """Return the type of a struct."""
    pairs = tuple(fields)
    return Type("struct", tuple(part for _, part in pairs), tuple(name for name, _ in pairs))


def decimal(precision: int, scale: int) -> Type:
    """Return a decimal type; digits beyond Spark's 38 are cut."""
    return Type("decimal", size=(min(precision, _MOST_DIGITS), min(scale, _MOST_DIGITS)))


def as_decimal(kind: Type) -> Type:
    """Return the decimal that holds every value of a whole-number type."""
    return decimal(_DIGITS[kind.name], 0) if kind.is_integer else kind


def read(text: str) -> Type:
    """Read a type as a user writes it.

    >>> read("STRUCT<a: INT, b: ARRAY<STRING>>").fields
    ('a', 'b')
    """
    if text.lower().startswith(("interval", "void", "variant")):
        return Type(" ".join(text.lower().split()))
    same = re.sub("timestamp_ltz", "timestamp", text, flags=re.IGNORECASE)
    try:
        return from_tree(exp.DataType.build(parse_type(same), dialect="spark"))
    except ValueError:
        message = f"unknown type {text!r}"
        raise BadSchema(message) from None


def from_tree(tree: exp.Expr) -> Type:
    """Return the type that a parsed type means."""
    inner = tuple(tree.expressions)
    match tree.this:
        case exp.DataType.Type.DECIMAL:
            return decimal(*(int(part.name) for part in inner))
        case exp.DataType.Type.STRUCT:
            return struct((part.name, from_tree(part.args["kind"])) for part in inner)
        case exp.DataType.Type.ARRAY | exp.DataType.Type.MAP:
            return Type(tree.this.value.lower(), tuple(map(from_tree, inner)))
    return Type(tree.sql("spark").lower())


def interval(first: str, last: str) -> Type:
    """Return the type of a span that is written from one unit to another."""
    return Type(f"interval {first}" if first == last else f"interval {first} to {last}")


def common(kinds: Iterable[Type]) -> Type | None:
    """Return the one type that all can become without a loss, as in `coalesce`; None if there is none."""
    found: Type | None = VOID
    for kind in kinds:
        found = common_of_two(found, kind) if found else None
    return found


def common_of_two(a: Type, b: Type) -> Type | None:
    """Return the one type that both can become."""
    if a == b or b == VOID:
        return a
    if a == VOID:
        return b
    if a.is_numeric and b.is_numeric:
        return _common_number(a, b)
    if STRING in (a, b):
        return _common_with_string(b if a == STRING else a)
    if a.is_interval and b.is_interval:
        return _common_interval(a, b)
    if a.name == b.name and a.parts and b.parts:
        return _common_nested(a, b)
    found = _TIMES.get(frozenset({a.name, b.name}))
    return Type(found) if found else None


def _common_number(a: Type, b: Type) -> Type:
    names = {a.name, b.name}
    if names & {"float", "double"}:
        # Spark widens even float with smallint to double: a float holds only 24 bits exactly.
        return DOUBLE
    if "decimal" in names:
        return _common_decimal(as_decimal(a), as_decimal(b))
    return a if INTEGERS.index(a.name) > INTEGERS.index(b.name) else b


def _common_decimal(a: Type, b: Type) -> Type:
    whole = max(a.size[0] - a.size[1], b.size[0] - b.size[1])
    scale = max(a.size[1], b.size[1])
    excess = max(0, whole + scale - _MOST_DIGITS)
    return decimal(whole + scale - excess, max(0, scale - excess))


def _common_with_string(other: Type) -> Type | None:
    if other.is_numeric:
        return BIGINT if other.is_integer else DOUBLE
    return None if other.parts or other.is_interval else other


def _common_interval(a: Type, b: Type) -> Type | None:
    units = _YEAR_MONTH if a.is_years else _DAY_TIME
    if a.is_years != b.is_years:
        return None
    used = [units.index(word) for kind in (a, b) for word in kind.name.split() if word in units]
    return interval(units[min(used)], units[max(used)])


def _common_nested(a: Type, b: Type) -> Type | None:
    if a.fields != b.fields or len(a.parts) != len(b.parts):
        return None
    parts = [common_of_two(x, y) for x, y in zip(a.parts, b.parts, strict=True)]
    known = tuple(part for part in parts if part is not None)
    return Type(a.name, known, a.fields) if len(known) == len(parts) else None
