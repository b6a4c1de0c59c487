"""Comparisons, AND and OR, CASE, and the functions that choose one of their arguments.

A part that a row can make fail is guarded: Spark does not reach the second side of AND and OR where the first decides,
and DuckDB evaluates sides in the order that it likes.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.plan.sql_expressions.types import BOOLEAN, VOID
from penstock.plan.translation.casts import widened
from penstock.plan.translation.operators import guarded
from penstock.plan.translation.parts import Part, kinds_of, not_native, safe_after_first
from penstock.plan.translation.translator import Handler, Translation

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}


def _connected(translation: Translation, tree: exp.Expr) -> Part:
    left, right = translation.parts([tree.this, tree.expression])
    word, decides, result = ("AND", "NOT ", "FALSE") if isinstance(tree, exp.And) else ("OR", "", "TRUE")
    sql = f"({_condition(left)} {word} {_condition(right)})"
    if left.fails or right.fails:
        sql = f"(CASE WHEN {decides}{_condition(left)} THEN {result} ELSE {sql} END)"
    return translation.made(tree, sql, [left, right])


def _negation(translation: Translation, tree: exp.Expr) -> Part:
    below = translation.part(tree.this)
    return translation.made(tree, f"(NOT {_condition(below)})", [below])


def _condition(part: Part) -> str:
    if part.type not in (BOOLEAN, VOID):
        not_native(f"a {part.type} as a condition")
    return part.sql if part.type == BOOLEAN else "CAST(NULL AS BOOLEAN)"


def _identity(translation: Translation, tree: exp.Expr) -> Part:
    """Write IS NULL, IS TRUE and IS FALSE."""
    below, what = translation.parts([tree.this, tree.expression])
    if what.type not in (VOID, BOOLEAN) or (what.type == BOOLEAN and below.type != BOOLEAN):
        not_native(f"{kinds_of([below])} IS {what.sql}")
    return translation.made(tree, f"({below.sql} IS {what.sql})", [below])


def _compared(translation: Translation, tree: exp.Expr) -> Part:
    parts = translation.parts([tree.this, tree.expression])
    a, b = translation.alike(parts)
    word = _COMPARISONS[type(tree)]
    sql = f"({a} {word} {b})"
    return translation.made(tree, sql if " " in word else guarded(word, sql, *parts), parts)


def _between(translation: Translation, tree: exp.Expr) -> Part:
    if tree.args.get("symmetric"):
        not_native("BETWEEN SYMMETRIC")
    parts = translation.parts([tree.this, tree.args["low"], tree.args["high"]])
    safe_after_first(parts, "BETWEEN")
    value, low, high = translation.alike(parts)
    return translation.made(tree, f"({value} BETWEEN {low} AND {high})", parts)


def _within(translation: Translation, tree: exp.Expr) -> Part:
    parts = translation.parts([tree.this, *tree.expressions])
    safe_after_first(parts, "IN")
    value, *others = translation.alike(parts)
    return translation.made(tree, f"({value} IN ({', '.join(others)}))", parts)


def _case(translation: Translation, tree: exp.Expr) -> Part:
    branches = tree.args["ifs"]
    tests = translation.parts(branch.this for branch in branches)
    values = [*(branch.args["true"] for branch in branches), tree.args.get("default") or exp.Null()]
    conditions = [_condition(test) for test in tests] if not tree.this else []
    if tree.this:
        safe_after_first([translation.part(tree.this), *tests], "CASE")
        subject, *wanted = translation.alike([translation.part(tree.this), *tests])
        conditions = [f"{subject} = {value}" for value in wanted]
    return _choice(translation, tree, conditions, translation.parts(values), tests)


def _if(translation: Translation, tree: exp.Expr) -> Part:
    test = translation.part(tree.this)
    values = translation.parts([tree.args["true"], tree.args.get("false") or exp.Null()])
    return _choice(translation, tree, [_condition(test)], values, [test])


def _choice(
    translation: Translation, tree: exp.Expr, conditions: list[str], values: list[Part], tests: list[Part]
) -> Part:
    kind = translation.type_of(tree)
    *thens, last = (widened(value, kind) for value in values)
    whens = " ".join(f"WHEN {test} THEN {then}" for test, then in zip(conditions, thens, strict=True))
    return translation.made(tree, f"(CASE {whens} ELSE {last} END)", tests + values)


def _coalesced(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    kind = translation.type_of(tree)
    return translation.made(tree, f"coalesce({', '.join(widened(part, kind) for part in parts)})", parts)


def _extreme(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    return translation.made(tree, f"{tree.name.lower()}({', '.join(translation.alike(parts))})", parts)


def _null_if(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    safe_after_first(parts, "nullif()")
    a, b = translation.alike(parts)
    return translation.made(tree, f"CASE WHEN {a} = {b} THEN NULL ELSE {parts[0].sql} END", parts)


def _by_null(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    kind = translation.type_of(tree)
    then, other = (widened(value, kind) for value in parts[1:])
    return translation.made(tree, f"CASE WHEN {parts[0].sql} IS NOT NULL THEN {then} ELSE {other} END", parts)


def _is_null(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    return translation.made(tree, f"({parts[0].sql} IS NULL)", parts)


def _is_not_null(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    return translation.made(tree, f"({parts[0].sql} IS NOT NULL)", parts)


def _equal_null(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    a, b = translation.alike(parts)
    return translation.made(tree, f"({a} IS NOT DISTINCT FROM {b})", parts)


CALLS: dict[str, Callable[[Translation, exp.Expr, list[Part]], Part]] = {
    **dict.fromkeys(("coalesce", "nvl", "ifnull"), _coalesced),
    **dict.fromkeys(("greatest", "least"), _extreme),
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "nullif": _null_if,
    "nvl2": _by_null,
    "equal_null": _equal_null,
}
HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.And: _connected,
    exp.Or: _connected,
    exp.Not: _negation,
    exp.Is: _identity,
    exp.Between: _between,
    exp.In: _within,
    exp.Case: _case,
    exp.If: _if,
    **dict.fromkeys(_COMPARISONS, _compared),
}
