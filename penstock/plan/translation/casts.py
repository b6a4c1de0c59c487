"""Casts that give the same value, and fail on the same values, in both engines."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from penstock.plan.sql_expressions.types import Type, holds_exactly
from penstock.plan.translation.parts import Part, duckdb_type, not_native

# Digits that a double holds exactly, whatever they are.
_EXACT_DIGITS = 15
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")
# What Spark trims before it reads a number: blanks and control characters.
_BLANK = r"[\x00-\x20\x7f]*"
_TWO_63 = "9223372036854775808"


@dataclass(frozen=True)
class Cast:
    """A cast to be written: what, from which type to which, and DuckDB's word for it."""

    sql: str
    source: Type
    kind: Type
    word: str = "CAST"

    def of(self, sql: str) -> str:
        """Cast something else instead of the operand."""
        return f"{self.word}({sql} AS {duckdb_type(self.kind)})"


def widened(part: Part, kind: Type) -> str:
    """Return a part as a type that holds all its values, as Spark converts operands by itself."""
    if part.type == kind:
        return part.sql
    if part.type.name == "void":
        return f"CAST(NULL AS {duckdb_type(kind)})"
    if kind.name in ("date", "timestamp") and part.text is not None:
        return _moment(part.text, kind)
    if kind.name == "double" and part.type.name == "decimal" and part.number is not None:
        return float_literal(str(part.number))
    if not _holds(kind, part.type):
        not_native(f"a {part.type} used as a {kind}")
    return cast(part, kind)


def cast(part: Part, kind: Type, *, safe: bool = False) -> str:
    """Return a part as another type, as `cast` does, or as `try_cast` does if that is safe."""
    if part.type.name == "void":
        return f"CAST(NULL AS {duckdb_type(kind)})"
    if part.type == kind:
        return part.sql
    families = (family(part.type), family(kind))
    rule = CASTS.get(families)
    if rule is None or (safe and families not in TRY_CASTS):
        not_native(f"a cast from {part.type} to {kind}")
    return rule(Cast(part.sql, part.type, kind, "TRY_CAST" if safe else "CAST"))


def float_literal(digits: str) -> str:
    """Write a double; both engines round it once, to the nearest."""
    value = float(digits)
    if math.isinf(value):
        not_native(f"the number {digits}")
    return f"CAST('{value!r}' AS DOUBLE)"


def family(kind: Type) -> str:
    """Return the name of a type in the list of casts."""
    return "whole" if kind.is_integer else kind.name


def _holds(kind: Type, other: Type) -> bool:
    """Whether a type holds every value of another."""
    if kind.name == "double":
        return other.is_numeric
    return holds_exactly(kind, other) or (kind.name, other.name) == ("timestamp", "date")


def _moment(text: str, kind: Type) -> str:
    """Write a date or a time; only the plain forms, which need no rules to read."""
    form, read = (_DATE, date) if kind.name == "date" else (_TIME, datetime)
    whole = f"{text} 00:00:00" if kind.name == "timestamp" and _DATE.fullmatch(text) else text
    if not form.fullmatch(whole):
        not_native(f"the {kind} '{text}'")
    try:
        read.fromisoformat(whole)
    except ValueError:
        not_native(f"the {kind} '{text}'")
    zone = "+00" if kind.name == "timestamp" else ""
    return f"CAST('{whole}{zone}' AS {duckdb_type(kind)})"


def _plain(cast: Cast) -> str:
    return cast.of(cast.sql)


def _cut(cast: Cast) -> str:
    """Spark cuts the decimals off, DuckDB rounds."""
    return cast.of(f"trunc({cast.sql})")


def _cut_double(cast: Cast) -> str:
    """As `_cut`; 2 to the 63rd passes Spark's check and becomes the largest bigint."""
    if cast.kind.name != "bigint":
        return _cut(cast)
    return f"CASE WHEN {cast.sql} = CAST({_TWO_63} AS DOUBLE) THEN 9223372036854775807 ELSE {_cut(cast)} END"


def _decimal_to_double(cast: Cast) -> str:
    if cast.source.size[0] > _EXACT_DIGITS:
        not_native(f"a cast from {cast.source} to double")
    return _plain(cast)


def _is_not_zero(cast: Cast) -> str:
    return f"({cast.sql} <> 0)"


def _read_whole(cast: Cast) -> str:
    """Read digits with a sign; DuckDB alone would take 1.5, 1e3, 0x1f and 1_000 too; an empty string is no number."""
    return cast.of(f"regexp_extract({cast.sql}, '^{_BLANK}([+-]?[0-9]+){_BLANK}$', 1)")


def _date_of(cast: Cast) -> str:
    return cast.of(f"make_timestamp(epoch_us({cast.sql}))")


def _time_of(cast: Cast) -> str:
    return cast.of(f"CAST({cast.sql} AS TIMESTAMP)")


CASTS: dict[tuple[str, str], Callable[[Cast], str]] = {
    ("whole", "whole"): _plain,
    ("whole", "double"): _plain,
    ("whole", "float"): _plain,
    ("whole", "decimal"): _plain,
    ("whole", "string"): _plain,
    ("whole", "boolean"): _is_not_zero,
    ("float", "double"): _plain,
    ("float", "whole"): _cut_double,
    ("double", "whole"): _cut_double,
    ("decimal", "decimal"): _plain,
    ("decimal", "whole"): _cut,
    ("decimal", "double"): _decimal_to_double,
    ("decimal", "string"): _plain,
    ("boolean", "whole"): _plain,
    ("boolean", "double"): _plain,
    ("boolean", "string"): _plain,
    ("string", "whole"): _read_whole,
    ("timestamp", "date"): _date_of,
    ("date", "timestamp"): _time_of,
}
TRY_CASTS = {
    ("whole", "whole"),
    ("whole", "string"),
    ("double", "whole"),
    ("decimal", "whole"),
    ("decimal", "decimal"),
    ("string", "whole"),
}
