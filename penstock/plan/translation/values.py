"""Columns, literals and casts."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.sql_expressions.types import BOOLEAN, SUFFIXED, VOID, Type
from penstock.plan.translation.casts import cast, family, float_literal, widened
from penstock.plan.translation.functions import called
from penstock.plan.translation.parts import Part, duckdb_type, is_carried, not_native, text_literal
from penstock.plan.translation.translator import Handler, Translation


def quote(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def _column(translation: Translation, tree: exp.Expr) -> Part:
    if tree.args.get("table") or tree.name not in translation.schema:
        not_native(f"the field {tree.sql('spark')}")
    kind = translation.type_of(tree)
    if not is_carried(kind) or kind.parts or kind.name == "binary":
        not_native(f"the type {kind} of {tree.name}")
    return Part(quote(tree.name), kind, tree)


def _literal(translation: Translation, tree: exp.Expr) -> Part:
    kind = translation.type_of(tree)
    sql = text_literal(tree.name) if kind.name == "string" else _number(tree.name, kind)
    return Part(sql, kind, tree)


def _number(digits: str, kind: Type) -> str:
    """Write a number with its Spark type: DuckDB would choose a narrower one."""
    return float_literal(digits) if kind.name == "double" else f"CAST('{digits}' AS {duckdb_type(kind)})"


def _joined_literals(translation: Translation, tree: exp.Expr) -> Part:
    """Write 'a' 'b', which is one text."""
    texts = translation.parts(tree.expressions)
    return translation.made(tree, f"({' || '.join(text.sql for text in texts)})", texts)


def _negated(translation: Translation, tree: exp.Expr) -> Part:
    """Write `-x`; the least number of a type is one literal."""
    below, kind = tree.this, translation.type_of(tree)
    if isinstance(below, exp.Literal) and not below.is_string:
        return Part(_number(f"-{below.name}", kind), kind, tree)
    return called(translation, "negative", tree, translation.parts([below]))


def _null(translation: Translation, tree: exp.Expr) -> Part:
    return Part("NULL", VOID, tree)


def _boolean(translation: Translation, tree: exp.Expr) -> Part:
    return Part("TRUE" if tree.this else "FALSE", BOOLEAN, tree)


def _inner(translation: Translation, tree: exp.Expr) -> Part:
    below = translation.part(tree.this)
    return Part(f"({below.sql})", below.type, below.tree, below.fails)


def _cast(translation: Translation, tree: exp.Expr) -> Part:
    """Write a cast, a typed literal such as DATE '2026-01-01', or a number with a suffix."""
    kind, below = translation.type_of(tree), translation.part(tree.this)
    if tree.meta.get(SUFFIXED) or (kind.name == "double" and isinstance(tree.this, exp.Literal) and below.number):
        return Part(_number(tree.this.name, kind), kind, tree.this)
    if below.text is not None and kind.name in ("date", "timestamp"):
        return translation.made(tree, widened(below, kind), [])
    safe = bool(tree.args.get("safe"))
    sql = cast(below, kind, safe=safe)
    translation.used.add(f"{'try_' if safe else ''}cast {family(below.type)} {family(kind)}")
    return translation.made(tree, sql, [below], fails=not safe)


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Concat: _joined_literals,
    exp.Neg: _negated,
    exp.Null: _null,
    exp.Boolean: _boolean,
    exp.Paren: _inner,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
