"""Translation of Spark SQL to DuckDB SQL, for expressions that give the same results in both, to the bit.

Only forms that are compared with Spark are supported (tests/native): on nulls, NaN, infinities, negative zero,
overflow, decimals, calendar edges, Unicode. The node of any other expression runs in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from penstock.errors import PipelineError
from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.plan.sql_expressions.types import read
from penstock.plan.translation import calls, casts, functions, logic, operators, values
from penstock.plan.translation.parts import NotNative, is_carried, not_native
from penstock.plan.translation.translator import COMPARABLE, Translation
from penstock.schema import Schema

__all__ = ["KEY_TYPES", "native_sql", "supported_forms", "translate", "why_not", "why_not_names", "why_not_rows"]

KEY_TYPES = frozenset({"string", "bigint", "int", "boolean", "date", "timestamp"})
_HANDLERS = values.HANDLERS | logic.HANDLERS | calls.HANDLERS
_SPANS = {f"{kind} {sign} span" for kind in ("date", "timestamp") for sign in "+-"}


def why_not(sql: str, schema: Schema) -> str | None:
    """Return why an expression cannot run natively, or None if it can."""
    try:
        native_sql(sql, schema)
    except NotNative as reason:
        return str(reason)
    except PipelineError as error:
        return error.message
    return None


def why_not_rows(schema: Schema) -> str | None:
    """Return why rows of a schema cannot pass through DuckDB."""
    if reason := why_not_names(schema.names):
        return reason
    wrong = (f"the type {field.type} of {field.name}" for field in schema if not is_carried(read(field.type)))
    return next(wrong, None)


def why_not_names(names: Iterable[str]) -> str | None:
    """Return why rows with such names cannot pass through DuckDB, which ignores case."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            return f"the columns {other} and {name}, which differ in case only"
        if {"{", "}"} & {*name}:
            return f"the column {name}, which has braces in its name"
    return None


def native_sql(sql: str, schema: Schema) -> str:
    """Return DuckDB's SQL of an expression; `NotNative` if it must be Spark's."""
    tree = parse_verbatim(sql, node="expression")
    if isinstance(tree, exp.Column) and not tree.table and tree.name in schema:
        return _carried(tree.name, schema)
    return translate(sql, schema).whole().sql


def translate(sql: str, schema: Schema) -> Translation:
    """Return a translation of an expression, which has all of its parts."""
    return Translation(sql, schema, _HANDLERS)


def supported_forms() -> set[str]:
    """Return the name of each supported form of an operator, a cast or a function, as `Translation.used` has them."""
    found = {key for form in functions.ALL for key in form.keys}
    found |= operators.FORMS | _SPANS | {f"compare {kind}" for kind in COMPARABLE}
    found |= {f"cast {a} {b}" for a, b in casts.CASTS} | {f"try_cast {a} {b}" for a, b in casts.TRY_CASTS}
    found |= {f"{name}()" for name in (*logic.CALLS, *calls.SEARCHES)}
    return found | {kind.__name__ for kind in _HANDLERS}


def _carried(name: str, schema: Schema) -> str:
    """Return a column that is passed through, of whatever type."""
    if not is_carried(read(schema.types[name])):
        not_native(f"the type {schema.types[name]} of {name}")
    return values.quote(name)
