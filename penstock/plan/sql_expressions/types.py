"""Spark's types: common types, literals and casts under ANSI rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import BadSchema
from penstock.schema import ddl_name, parse_type

INTEGERS = ("tinyint", "smallint", "int", "bigint")
MOST_DIGITS = 38
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
    return Type("decimal", size=(min(precision, MOST_DIGITS), min(scale, MOST_DIGITS)))


def as_decimal(kind: Type) -> Type:
    """Return the decimal that holds every value of a whole-number type."""
    return decimal(_DIGITS[kind.name], 0) if kind.is_integer else kind


def holds_exactly(kind: Type, other: Type) -> bool:
    """Return whether a type of whole numbers or decimals has every value of another such type."""
    if kind.is_integer and other.is_integer:
        return INTEGERS.index(kind.name) > INTEGERS.index(other.name)
    if kind.name != "decimal" or not (other.is_integer or other.name == "decimal"):
        return False
    inner = as_decimal(other).size
    return kind.size[1] >= inner[1] and kind.size[0] - kind.size[1] >= inner[0] - inner[1]


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
    excess = max(0, whole + scale - MOST_DIGITS)
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


_INT_MAX, _BIGINT_MAX = 2**31 - 1, 2**63 - 1
# Metadata of the cast that sqlglot makes of 10L, to distinguish it from a cast that the user wrote.
SUFFIXED = "suffixed"
_UNITS = ("year", "month", "day", "hour", "minute", "second")
_STORED_AS = {"week": "day", "millisecond": "second", "microsecond": "second"}


def number_type(digits: str, *, negative: bool = False) -> Type:
    """Return the type of a number; the most negative whole number has no positive twin.

    >>> str(number_type("2147483648")), str(number_type("2147483648", negative=True))
    ('bigint', 'int')
    """
    if "e" in digits.lower():
        return DOUBLE
    if "." in digits:
        return decimal_type(digits)
    value = int(digits) - negative
    if value <= _INT_MAX:
        return INT
    return BIGINT if value <= _BIGINT_MAX else decimal_type(digits)


def decimal_type(digits: str) -> Type:
    """Return the smallest decimal type that holds a number."""
    whole, _, fraction = digits.partition(".")
    significant = len((whole + fraction).lstrip("0"))
    return decimal(max(significant, len(fraction), 1), len(fraction))


def operands(trees: Sequence[exp.Expr], kinds: Sequence[Type]) -> list[Type]:
    """Return the types of operands; beside a decimal, a whole literal counts only the digits it has."""
    if not any(kind.name == "decimal" for kind in kinds):
        return list(kinds)
    pairs = zip(trees, kinds, strict=True)
    return [decimal_type(digits) if (digits := _whole_digits(tree, kind)) else kind for tree, kind in pairs]


def _whole_digits(tree: exp.Expr, kind: Type) -> str | None:
    bare = tree.unnest()
    if isinstance(bare, exp.Neg):
        bare = bare.this
    if isinstance(bare, exp.TryCast) and bare.meta.get(SUFFIXED):
        bare = bare.this
    return bare.name if isinstance(bare, exp.Literal) and kind.is_integer else None


def interval_type(unit: exp.Expr | None) -> Type | None:
    """Return the type of an interval in a unit, or from one unit TO another; None if it is not a unit."""
    if isinstance(unit, exp.IntervalSpan):
        return interval(unit.this.name.lower(), unit.expression.name.lower())
    name = unit.name.lower().removesuffix("s") if unit else ""
    name = _STORED_AS.get(name, name)
    return interval(name, name) if name in _UNITS else None


_TIMESTAMPS = ("timestamp", "timestamp_ntz")


def castable(given: Type, target: Type) -> bool:
    """Return whether a cast may work; only what never does is refused.

    >>> castable(Type("array", (DATE,)), DATE), castable(STRING, DATE)
    (False, True)
    """
    if VOID in (given, target) or given == target or "variant" in (given.name, target.name):
        return True
    if given.parts or target.parts:
        return target == STRING or given.name == target.name
    if given == DATE:
        return not (target.is_numeric or target in (BOOLEAN, BINARY))
    if target == DATE:
        return not (given.is_numeric or given in (BOOLEAN, BINARY))
    if BOOLEAN in (given, target):
        other = target if given == BOOLEAN else given
        return other == STRING or other.is_numeric
    return not (given == BINARY and (target.is_numeric or target.name in _TIMESTAMPS))


def cast_advice(given: Type, target: Type, text: str) -> str:
    """Return how to convert one type to another."""
    if given == DATE and target.is_numeric:
        return f"count the days: unix_date({text}), or take a part: year({text})"
    if target == DATE and given.is_numeric:
        return f"days since 1970 become a date by date_from_unix_date({text})"
    if given.name == "array":
        return f"take one of its elements: {text}[0]"
    if given.name == "struct":
        return f"take one of its fields: {text}.{given.fields[0]}"
    if given.name == "map":
        return f"take one of its values: {text}['key']"
    return "choose another type, or cast to string first"
