"""What Penstock learns from a Python function's signature."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

from penstock.errors import BadFunction
from penstock.schema import Schema, Shape


def output_schema(
    fn: Callable[..., Any], schema: Shape | None, given: Schema, *, node: str, asynchronous: bool = False
) -> Schema:
    """Return what a function makes: `schema`, else its annotated dataclass, else what it is given."""
    if not callable(fn):
        message = f"{fn!r} is not a function"
        raise BadFunction(message, node=node, hint="pass a Python function; SQL goes to select()")
    if _is_async(fn) != asynchronous:
        name = getattr(fn, "__qualname__", repr(fn))
        message = f"{name} is not async" if asynchronous else f"{name} is async"
        hint = "write `async def`, or use map()" if asynchronous else "use map_async(), or a plain function here"
        raise BadFunction(message, node=node, hint=hint)
    if schema is not None:
        return Schema(schema)
    annotated = _dataclass_of(_hints(fn).get("return"))
    return Schema(annotated) if annotated else given


def row_class(fn: Callable[..., Any]) -> type | None:
    """Return the dataclass that annotates the first parameter, if one does."""
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return None
    return _dataclass_of(_hints(fn).get(parameters[0])) if parameters else None


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except (TypeError, NameError):
        return {}


def _dataclass_of(hint: Any) -> type | None:
    """Return the dataclass in `D`, `Iterator[D]`, `list[D]` or `D | None`."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for arg in typing.get_args(hint) if (found := _dataclass_of(arg))), None)
