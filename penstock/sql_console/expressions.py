"""Expressions in DuckDB's SQL: by the rules of the native lane, and where it has none, as sqlglot translates them."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from penstock.errors import BadExpression
from penstock.plan.sql_expressions.parsing import parse
from penstock.plan.sql_expressions.types import VOID, Type, read
from penstock.plan.translation import native_sql
from penstock.plan.translation.parts import NotNative, duckdb_type
from penstock.plan.translation.values import quote
from penstock.schema import Schema

# Types that expressions of the native lane cannot make, but that columns have.
_MORE = {"binary": "BLOB", "timestamp_ntz": "TIMESTAMP"}
_FOREIGN = (exp.Query, exp.Subquery, exp.Table, exp.Command, exp.Parameter, exp.Placeholder, exp.SessionParameter)


class Expressions:
    """Translates expressions; `approximate` lists those for which the native lane has no rule."""

    def __init__(self) -> None:
        self.approximate: list[str] = []

    def sql(self, text: str, schema: Schema, kind: str) -> str:
        """Return an expression over these columns; `kind` is Spark's type of it."""
        try:
            return native_sql(text, schema)
        except NotNative:
            return self.transpiled(text, kind)

    def transpiled(self, text: str, kind: str) -> str:
        """Return an expression as sqlglot translates it, of Spark's type. Its functions are known to be Spark's."""
        tree = parse(text, node="expression")
        if tree.find(*_FOREIGN):
            raise needs_spark(text)
        try:
            made = tree.sql("duckdb", unsupported_level=ErrorLevel.RAISE)
        except SqlglotError:
            raise needs_spark(text) from None
        if text not in self.approximate:
            self.approximate.append(text)
        wanted = read(kind)
        return f"({made})" if wanted == VOID else f"CAST({made} AS {_type(wanted, text)})"


def needs_spark(text: str) -> BadExpression:
    """Return the error for what only a job can compute."""
    message = f'"{text}" needs Spark, and the console runs without it'
    return BadExpression(message, node="sql", hint="run the query as a job, or write it in another way")


def _type(kind: Type, text: str) -> str:
    if kind.name == "array":
        return f"{_type(kind.parts[0], text)}[]"
    if kind.name == "map":
        return f"MAP({_type(kind.parts[0], text)}, {_type(kind.parts[1], text)})"
    if kind.name == "struct":
        pairs = zip(kind.fields, kind.parts, strict=True)
        return f"STRUCT({', '.join(f'{quote(name)} {_type(part, text)}' for name, part in pairs)})"
    if kind.name in _MORE:
        return _MORE[kind.name]
    try:
        return duckdb_type(kind)
    except NotNative:
        raise needs_spark(text) from None
