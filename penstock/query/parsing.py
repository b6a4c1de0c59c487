"""The parser of queries: Spark SQL in which each call has the name that the user wrote."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.errors import BadExpression
from penstock.plan.sql_expressions.parsing import Verbatim
from penstock.schema import quoted

NODE = "sql"
WINDOW_CALLS = ("window", "session_window")


class Query(Verbatim):
    """Without the WINDOW clause, for which sqlglot takes `GROUP BY window(...)`."""

    class Tokenizer(Verbatim.Tokenizer):
        """WINDOW is a name."""

        KEYWORDS: ClassVar = {word: token for word, token in Verbatim.Tokenizer.KEYWORDS.items() if word != "WINDOW"}


def read_query(query: str) -> exp.Expr:
    """Return the tree of one query."""
    hint = "write one SELECT ... FROM name"
    if not isinstance(query, str):
        raise BadExpression(f"{query!r} is not a query", node=NODE, hint=hint)  # noqa: EM102
    try:
        trees = [tree for tree in sqlglot.parse(query, dialect=Query) if tree and not isinstance(tree, exp.Semicolon)]
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        message = f"this is not Spark SQL: {(str(error).splitlines() or [''])[0]}"
        raise BadExpression(message, node=NODE, hint=hint) from None
    if len(trees) != 1:
        message = f"there are {len(trees)} statements" if trees else "the query is empty"
        raise BadExpression(message, node=NODE, hint=hint)
    if trees[0].find(exp.Placeholder, exp.Parameter):
        message = "parameters (:name or ?) are not available"
        raise BadExpression(message, node=NODE, hint='put the value into the text: f"... WHERE size > {least}"')
    return trees[0]


def text_of(tree: exp.Expr) -> str:
    """Return an expression as Spark SQL; a lone column as plans name it."""
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return quoted(tree.name)
    return tree.sql(dialect=Query, normalize_functions=False, comments=False)


def name_of(item: exp.Expr, columns: Collection[str] = ()) -> str:
    """Return the name of a result column: its alias, the last part of a column's name, or its text, as in Spark.

    A window is named as its function, and its bounds as in every result: `window_start`, `window_end`. `columns` are
    those of the stream: one that is called `window` is not a window.
    """
    if isinstance(item, exp.Alias):
        return item.alias
    if call_of(item) in WINDOW_CALLS:
        return call_of(item)
    of = call_of(item.this.unnest()) if isinstance(item, exp.Dot) else item.text("table")
    if of in WINDOW_CALLS and item.name in ("start", "end") and (isinstance(item, exp.Dot) or of not in columns):
        return f"window_{item.name}"
    return item.name if isinstance(item, exp.Column | exp.Dot) else text_of(item)


def body_of(item: exp.Expr) -> exp.Expr:
    """Return an item without its alias."""
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def call_of(tree: exp.Expr) -> str:
    """Return the name of the function that a tree calls, in lower case; empty if it is not a call."""
    return tree.name.lower() if isinstance(tree, exp.Anonymous) else ""


def fresh(name: str, taken: set[str]) -> str:
    """Return a name that no column has."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found
