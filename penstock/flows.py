"""What streams and views share: a node of the plan with a name, outputs, and arguments that name columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock import argument_checks as checks
from penstock.errors import PipelineError
from penstock.plan.operators import stateless
from penstock.plan.operators.node import Node
from penstock.plan.sql_expressions.expression import scalar
from penstock.schema import Schema, bare, quoted

Names = str | Sequence[str]


@dataclass(frozen=True)
class Output:
    """A stream that ends in a sink: an argument of `Pipeline`."""

    node: stateless.Write

    def named(self, name: str) -> Output:
        """Name the output; counts and the sink's ledger use this name."""
        return Output(replace(self.node, name=checked_name(name)))


@dataclass(frozen=True)
class Flow:
    """The rows of a node."""

    node: Node

    @property
    def schema(self) -> Schema:
        """The columns of every row."""
        return self.node.schema

    @property
    def name(self) -> str:
        """The node's name, or its kind."""
        source = getattr(self.node, "source", None)
        return self.node.name or (source.name if source else self.node.kind)


def named_columns(given: Iterable[Any], named: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Merge columns from a leading dict (names that are not identifiers) and from keywords."""
    pairs: list[tuple[str, Any]] = []
    for part in given:
        if isinstance(part, Mapping):
            pairs.extend(part.items())
    return (*pairs, *named.items())


def selected(sql: str, schema: Schema) -> tuple[str, str]:
    """Return a column's name and SQL; a bare name that is not SQL, such as `order id`, or a word, is the column."""
    if sql in schema and quoted(sql) != sql and (sql.isidentifier() or not _is_sql(sql, schema)):
        return sql, quoted(sql)
    return bare(sql), sql


def as_names(names: Names) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def checked_name(name: str) -> str:
    """Return a valid name of a node."""
    return checks.name(name, "named")


def _is_sql(sql: str, schema: Schema) -> bool:
    try:
        scalar(sql, schema, node="select")
    except PipelineError:
        return False
    return True
