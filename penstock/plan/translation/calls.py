"""Operators on numbers and times, and calls of functions in all their spellings."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.sql_expressions.arithmetic_types import SIGNS
from penstock.plan.translation import logic
from penstock.plan.translation.functions import called
from penstock.plan.translation.operators import TRIED, arithmetic, form, guarded, tried
from penstock.plan.translation.parts import Part, not_native, text_literal
from penstock.plan.translation.patterns import like, matches
from penstock.plan.translation.times import shifted
from penstock.plan.translation.translator import Handler, Translation

SEARCHES = ("rlike", "regexp_like", "regexp")


def _arithmetic(translation: Translation, tree: exp.Expr) -> Part:
    sign = SIGNS[type(tree)]
    moved = shifted(sign, tree, translation.part)
    if moved is not None:
        translation.used.add(f"{moved.type} {sign} span")
        return translation.made(tree, moved.sql, [moved], fails=True)
    left, right = translation.parts([tree.this, tree.expression])
    translation.used.add(form(sign, left, right))
    sql = guarded(sign, arithmetic(sign, left, right), left, right)
    return translation.made(tree, sql, [left, right], fails=True)


def _joined(translation: Translation, tree: exp.Expr) -> Part:
    return called(translation, "concat", tree, translation.parts([tree.this, tree.expression]))


def _trimmed(translation: Translation, tree: exp.Expr) -> Part:
    if tree.args.get("expression") or tree.args.get("position"):
        not_native("trim with keywords")
    return called(translation, "trim", tree, translation.parts([tree.this]))


def _cut(translation: Translation, tree: exp.Expr) -> Part:
    given = [tree.this, tree.args["start"], tree.args.get("length")]
    return called(translation, "substring", tree, translation.parts(part for part in given if part))


def _located(translation: Translation, tree: exp.Expr) -> Part:
    if tree.args.get("position"):
        not_native("position() with a start")
    return called(translation, "position", tree, translation.parts([tree.args["substr"], tree.this]))


def _extracted(translation: Translation, tree: exp.Expr) -> Part:
    """Write EXTRACT by the function of the same name; its seconds have decimals, the function's have not."""
    name = tree.this.name.lower()
    if name == "second":
        not_native("extract(second)")
    return called(translation, name, tree, translation.parts([tree.expression]))


def _liked(translation: Translation, tree: exp.Expr) -> Part:
    escape = "\\"
    if isinstance(tree, exp.Escape):
        tree, escape = tree.this, tree.expression.name
    text, pattern = translation.parts([tree.this, tree.expression])
    if not isinstance(tree, exp.Like) or text.type.name != "string" or pattern.text is None:
        not_native("LIKE with a pattern that is not a literal")
    word = "NOT LIKE" if tree.args.get("negate") else "LIKE"
    return translation.made(tree, f"({text.sql} {word} {like(pattern.text, escape)})", [text])


def _searched(translation: Translation, tree: exp.Expr) -> Part:
    return _matched(translation, tree, translation.parts([tree.this, tree.expression]))


def _matched(translation: Translation, tree: exp.Expr, parts: list[Part]) -> Part:
    text, pattern = parts
    if text.type.name != "string" or pattern.text is None:
        not_native("a pattern that is not a literal")
    sql = f"regexp_matches({text.sql}, {text_literal(matches(pattern.text))})"
    return translation.made(tree, f"(NOT {sql})" if tree.args.get("negate") else sql, [text])


def _called(translation: Translation, tree: exp.Expr) -> Part:
    name = tree.name.lower()
    if any(isinstance(part, exp.Var) for part in tree.expressions):
        not_native(f"{name}() with a unit")
    parts = translation.parts(tree.expressions)
    if name in TRIED:
        translation.used.add(form(name, *parts))
        return translation.made(tree, guarded(TRIED[name], tried(TRIED[name], *parts), *parts), parts)
    if name in logic.CALLS or name in SEARCHES:
        translation.used.add(f"{name}()")
        return logic.CALLS.get(name, _matched)(translation, tree, parts)
    return called(translation, name, tree, parts)


HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.DPipe: _joined,
    exp.Trim: _trimmed,
    exp.Substring: _cut,
    exp.StrPosition: _located,
    exp.Extract: _extracted,
    exp.Like: _liked,
    exp.Escape: _liked,
    exp.RegexpLike: _searched,
    exp.Anonymous: _called,
    **dict.fromkeys(SIGNS, _arithmetic),
}
