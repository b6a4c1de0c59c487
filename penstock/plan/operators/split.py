"""Split: one stream into several branches; each row goes to the first branch whose condition holds, or to the rest."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import BadValue, PipelineError
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Filter
from penstock.plan.sql_expressions.expression import predicate

REST = "rest"


def branches(node: Node, conditions: Sequence[tuple[str, str]]) -> dict[str, Filter]:
    """Return the branches by name, the rest included: filters of one expression, so that no row is in two or none."""
    try:
        _check(node, conditions)
    except PipelineError as error:
        error.node = error.node or "split"
        raise
    which = " ".join(f"WHEN {_closed(sql)} THEN {_text(name)}" for name, sql in conditions)
    chosen = f"CASE {which}{_ELSE} END"
    return {name: Filter(input=node, condition=f"{chosen} = {_text(name)}") for name in (*dict(conditions), REST)}


def choice_of(node: Node) -> str | None:
    """Return the expression that chooses a row's branch, if a node is one branch of a split."""
    condition = node.row_sql[0] if node.kind == Filter.kind else ""
    chosen, ends, _ = condition.rpartition(f"{_ELSE} END = ") if condition.startswith("CASE ") else ("", "", "")
    return chosen if ends else None


def _check(node: Node, conditions: Sequence[tuple[str, str]]) -> None:
    if not conditions:
        message = "no condition is given"
        raise BadValue(message, hint='write split(name="condition", ...); rows for which none holds are in "rest"')
    names = [name for name, _ in conditions]
    for name, sql in conditions:
        if name == REST or names.count(name) > 1:
            message = f"duplicate branch '{name}'"
            raise BadValue(message, hint='choose another name; "rest" has the rows for which no condition holds')
        predicate(sql, node.schema, node=f"split '{name}'")


def _closed(sql: str) -> str:
    """Return a condition in brackets, which a comment at its end must not swallow."""
    return f"({sql}\n)" if "--" in sql else f"({sql})"


def _text(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


_ELSE = f" ELSE {_text(REST)}"
