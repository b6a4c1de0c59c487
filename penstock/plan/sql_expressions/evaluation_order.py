"""The order in which Spark evaluates the parts of an expression, and which of them it may leave out."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

COALESCE = ("coalesce", "nvl", "ifnull")
CONDITIONAL = ("if", "iff", "nvl2")
CHOICES = (exp.Case, exp.If)
STRICT = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
)


def inputs(tree: exp.Expr) -> Iterator[tuple[exp.Expr, tuple[str, ...]]]:
    """Yield the parts of a part in the order of evaluation, each with the conditions under which it is evaluated."""
    if isinstance(tree, (exp.And, exp.Or)):
        yield tree.this, ()
        decided = "FALSE" if isinstance(tree, exp.And) else "TRUE"
        yield tree.expression, (f"NOT ({closed(tree.this)} IS {decided})",)
    elif isinstance(tree, CHOICES):
        yield from _chosen(tree)
    elif isinstance(tree, STRICT):
        # Beside a null no second operand is evaluated; the first of a division is its divisor.
        divides = isinstance(tree, exp.Div | exp.Mod | exp.IntDiv)
        first, second = (tree.expression, tree.this) if divides else (tree.this, tree.expression)
        yield first, ()
        yield second, (f"({closed(first)} IS NOT NULL)",)
    elif isinstance(tree, exp.Anonymous) and tree.name.lower() in (*COALESCE, *CONDITIONAL):
        yield from _called(tree)
    elif not any(isinstance(one, exp.Lambda) for one in tree.iter_expressions()):
        parts = (one for one in tree.iter_expressions() if not isinstance(one, (exp.DataType, exp.Var, exp.Star)))
        yield from ((one, ()) for one in parts)


def _chosen(tree: exp.Expr) -> Iterator[tuple[exp.Expr, tuple[str, ...]]]:
    """Yield the conditions and values of CASE and IF: each is evaluated where no condition before it holds."""
    if isinstance(tree, exp.If):
        branches, default = [(tree.this, tree.args["true"])], tree.args.get("false")
    else:
        branches, default = [(one.this, one.args["true"]) for one in tree.args["ifs"]], tree.args.get("default")
    subject = tree.this if isinstance(tree, exp.Case) else None
    if subject is not None:
        yield subject, ()
    before: tuple[str, ...] = ()
    for test, value in branches:
        yield test, before
        condition = closed(test) if subject is None else f"({closed(subject)} = {closed(test)})"
        yield value, (*before, f"({condition} IS TRUE)")
        before = (*before, f"NOT ({condition} IS TRUE)")
    if default is not None:
        yield default, before


def _called(tree: exp.Expr) -> Iterator[tuple[exp.Expr, tuple[str, ...]]]:
    first, *others = tree.expressions
    yield first, ()
    if tree.name.lower() in COALESCE:
        before = [first, *others[:-1]]
        for number, one in enumerate(others, 1):
            yield one, tuple(f"({closed(earlier)} IS NULL)" for earlier in before[:number])
        return
    holds = f"({closed(first)} IS {'NOT NULL' if tree.name.lower() == 'nvl2' else 'TRUE'})"
    for one, guard in zip(others, (holds, f"NOT {holds}"), strict=False):
        yield one, (guard,)


def alike(tree: exp.Expr) -> list[list[exp.Expr]]:
    """Return the groups of parts that Spark gives one type each."""
    if isinstance(tree, exp.Case):
        branches = tree.args["ifs"]
        values = [*(one.args["true"] for one in branches), tree.args.get("default") or exp.Null()]
        return [[tree.this, *(one.this for one in branches)], values] if tree.this else [values]
    if isinstance(tree, exp.If):
        return [[tree.args["true"], tree.args.get("false") or exp.Null()]]
    if isinstance(tree, exp.Anonymous):
        return [tree.expressions[1 if tree.name.lower() in CONDITIONAL else 0 :]]
    return [list(tree.iter_expressions())]


def closed(part: exp.Expr | str) -> str:
    """Return a part in brackets, also if it ends in a comment."""
    text = part if isinstance(part, str) else text_of(part)
    return f"({text}\n)" if "--" in text else f"({text})"


def text_of(tree: exp.Expr) -> str:
    """Return a part as SQL."""
    return tree.sql("spark", normalize_functions=False, comments=False)
