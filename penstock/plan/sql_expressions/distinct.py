"""`count(DISTINCT x)` as Spark can stream it: the size of a set, which its state merges."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.sql_expressions.parsing import parse_verbatim

# Aggregates whose result over a set is the same as over all rows.
_SAME = ("min", "max", "bool_and", "every", "bool_or", "some", "any", "collect_set")


def distinct_call(call: exp.Anonymous) -> exp.Distinct | None:
    """Return the DISTINCT clause of an aggregate, if it has one.

    >>> distinct_call(parse_verbatim("count(DISTINCT a)", node="aggregate")) is not None
    True
    """
    first = call.expressions[0] if call.expressions else None
    return first if isinstance(first, exp.Distinct) else None


def streams(call: exp.Anonymous) -> bool:
    """Return whether an aggregate of distinct values can be streamed."""
    return call.name.lower() in ("count", *_SAME)


def without_distinct(sql: str) -> str:
    """Return the expression with sets in place of DISTINCT.

    >>> without_distinct("count(DISTINCT a)")
    'CAST(size(collect_set(a)) AS BIGINT)'
    >>> without_distinct("count(DISTINCT a, b) FILTER (WHERE c)")
    'CAST(size(collect_set(struct(a, b)) FILTER(WHERE NOT a IS NULL AND NOT b IS NULL AND (c))) AS BIGINT)'
    """
    if "distinct" not in sql.lower():
        return sql
    tree = exp.Paren(this=parse_verbatim(sql, node="aggregate"))
    for call in list(tree.find_all(exp.Anonymous)):
        clause = distinct_call(call)
        if clause is not None:
            _replace(call, clause)
    return _text(tree.this)


def _replace(call: exp.Anonymous, clause: exp.Distinct) -> None:
    values = [_text(one) for one in clause.expressions]
    if call.name.lower() != "count":
        call.set("expressions", clause.expressions)
        return
    whole = call.parent if isinstance(call.parent, exp.Filter) else call
    conditions = [f"{one} IS NOT NULL" for one in values] if len(values) > 1 else []
    if isinstance(whole, exp.Filter):
        conditions.append(f"({_text(whole.expression.this)})")
    member = values[0] if len(values) == 1 else f"struct({', '.join(values)})"
    where = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    made = f"CAST(size(collect_set({member}){where}) AS BIGINT)"
    whole.replace(parse_verbatim(made, node="aggregate"))


def _text(tree: exp.Expr) -> str:
    return tree.sql("spark", normalize_functions=False)
