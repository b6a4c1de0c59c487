"""Aggregators: aggregates that are written in Python."""

from __future__ import annotations

from typing import Any

from penstock.errors import BadFunction, BadSchema
from penstock.schema import Schema, Shape, ddl_name, parse_type
from penstock.signatures import check_call


class Aggregator:
    """Folds values into an accumulator, per key and window.

    `inputs` are SQL expressions over the row; `add` gets their values. The accumulator is kept in Spark's state
    store with the shape `state`: a type ("double") for one value, or columns ("n bigint, s double") for a dict.

    >>> class Longest(Aggregator):
    ...     state, result = "string", "string"
    ...     def start(self): return ""
    ...     def add(self, acc, word): return max(acc, word, key=len)
    ...     def merge(self, a, b): return max(a, b, key=len)
    ...     def finish(self, acc): return acc
    >>> Longest("word").inputs
    ('word',)
    """

    state: Shape
    result: str

    def __init__(self, *inputs: str) -> None:
        self.inputs = inputs

    def start(self) -> Any:
        """Return the accumulator of no rows."""
        raise NotImplementedError

    def add(self, acc: Any, *values: Any) -> Any:
        """Return the accumulator with one row more."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Return one accumulator for the rows of both."""
        raise NotImplementedError

    def finish(self, acc: Any) -> Any:
        """Return the result."""
        raise NotImplementedError


def result_type(given: Aggregator, node: str) -> str:
    """Return the type of an aggregator's result; raise BadFunction if the class is incomplete."""
    label = type(given).__name__
    for name, example in (("state", '"n bigint, total double"'), ("result", '"double"')):
        if not hasattr(given, name):
            message = f"{label} has no attribute `{name}`"
            raise BadFunction(message, node=node, hint=f"add to the class: {name} = {example}")
    for name in ("start", "add", "merge", "finish"):
        if getattr(type(given), name) is getattr(Aggregator, name):
            message = f"{label} has no {name}()"
            raise BadFunction(message, node=node, hint="an aggregator has start(), add(), merge() and finish()")
    check_call(given.add, ("acc", *(f"value{n}" for n in range(1, len(given.inputs) + 1))), node)
    for name, arguments in (("start", ()), ("merge", ("a", "b")), ("finish", ("acc",))):
        check_call(getattr(given, name), arguments, node)
    try:
        state_type(given.state)
    except BadSchema as error:
        message = f"state of {label}: {error.message}"
        raise BadSchema(message, node=node, hint=error.hint) from None
    try:
        return parse_type(given.result)
    except BadSchema as error:
        message = f"result of {label}: {error.message}"
        raise BadSchema(message, node=node, hint=error.hint) from None


def state_type(shape: Shape) -> str:
    """Return the Spark type that holds an accumulator.

    >>> state_type("double"), state_type("n bigint, s double")
    ('double', 'struct<n:bigint,s:double>')
    """
    if isinstance(shape, str):
        try:
            return parse_type(shape)
        except BadSchema:
            pass
    return struct_type(Schema(shape))


def struct_type(schema: Schema) -> str:
    """Return the Spark type of a whole row."""
    return f"struct<{','.join(f'{ddl_name(f.name)}:{f.type}' for f in schema)}>"
