"""Which expressions mean the same in Spark and in DuckDB, to the bit, and DuckDB's SQL for them.

Only what was compared with Spark is on the list (tests/native): on nulls, NaN, infinities, negative zero, overflow,
decimals, calendar edges, Unicode. An expression that is not on it keeps its node in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from penstock.errors import PipelineError
from penstock.plan.portable import calls, casts, functions, logic, operators, values
from penstock.plan.portable.parts import Stays, is_carried, stay
from penstock.plan.portable.translation import COMPARABLE, Translation
from penstock.plan.syntax import parse_verbatim
from penstock.plan.types import read
from penstock.schema import Schema

__all__ = ["KEY_TYPES", "forms", "native_sql", "translation", "why_not", "why_not_names", "why_not_rows"]

KEY_TYPES = frozenset({"string", "bigint", "int", "boolean", "date", "timestamp"})
_HANDLERS = values.HANDLERS | logic.HANDLERS | calls.HANDLERS
_SPANS = {f"{kind} {sign} span" for kind in ("date", "timestamp") for sign in "+-"}


def why_not(sql: str, schema: Schema) -> str | None:
    """Return what keeps an expression in Spark, or None if it may run natively."""
    try:
        native_sql(sql, schema)
    except Stays as stays:
        return str(stays)
    except PipelineError as error:
        return error.message
    return None


def why_not_rows(schema: Schema) -> str | None:
    """Return what keeps rows out of DuckDB."""
    if reason := why_not_names(schema.names):
        return reason
    wrong = (f"the type {field.type} of {field.name}" for field in schema if not is_carried(read(field.type)))
    return next(wrong, None)


def why_not_names(names: Iterable[str]) -> str | None:
    """Return which names keep rows out of DuckDB, which takes names that differ in case for one."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            return f"the columns {other} and {name}, which differ in case only"
        if {"{", "}"} & {*name}:
            return f"the column {name}, which has braces in its name"
    return None


def native_sql(sql: str, schema: Schema) -> str:
    """Return DuckDB's SQL of an expression; `Stays` if it must be Spark's."""
    tree = parse_verbatim(sql, node="expression")
    if isinstance(tree, exp.Column) and not tree.table and tree.name in schema:
        return _carried(tree.name, schema)
    return translation(sql, schema).whole().sql


def translation(sql: str, schema: Schema) -> Translation:
    """Return a translation of an expression, to be asked for its parts."""
    return Translation(sql, schema, _HANDLERS)


def forms() -> set[str]:
    """Return the list: what names each form of an operator, a cast or a function, as `Translation.used` does."""
    found = {key for form in functions.ALL for key in form.keys}
    found |= operators.FORMS | _SPANS | {f"compare {kind}" for kind in COMPARABLE}
    found |= {f"cast {a} {b}" for a, b in casts.CASTS} | {f"try_cast {a} {b}" for a, b in casts.TRY_CASTS}
    found |= {f"{name}()" for name in (*logic.CALLS, *calls.SEARCHES)}
    return found | {kind.__name__ for kind in _HANDLERS}


def _carried(name: str, schema: Schema) -> str:
    """Hand a column on as it is, of whatever type."""
    if not is_carried(read(schema.types[name])):
        stay(f"the type {schema.types[name]} of {name}")
    return values.quote(name)
