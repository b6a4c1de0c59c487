"""Signatures of users' functions: the schema that they return, and the arguments that they take."""

from __future__ import annotations

import dataclasses
import inspect
import os
import traceback
import typing
from collections.abc import Callable
from typing import Any

from penstock.errors import BadFunction, PenstockError
from penstock.schema import Schema, Shape

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def output_schema(
    fn: Callable[..., Any],
    schema: Shape | None,
    given: Schema,
    *,
    node: str,
    asynchronous: bool = False,
    one: bool = False,
    arguments: tuple[str, ...] = ("row",),
) -> Schema:
    """Return the schema of a function's rows: `schema`, else its annotated dataclass, else that of its input."""
    if not callable(fn):
        message = f"{fn!r} is not a function"
        raise BadFunction(message, node=node, hint="pass a Python function; SQL goes to select()")
    if asynchronous and inspect.isasyncgenfunction(fn):
        message = f"{name_of(fn)} yields rows, and map_async() must return one row for each"
        raise BadFunction(message, node=node, hint="return the row; to make many of one, follow it with flat_map()")
    if _is_async(fn) != asynchronous:
        name = name_of(fn)
        message = f"{name} is not async" if asynchronous else f"{name} is async"
        hint = "write `async def`, or use map()" if asynchronous else "use map_async(), or a plain function here"
        raise BadFunction(message, node=node, hint=hint)
    if one and inspect.isgeneratorfunction(fn):
        message = f"{name_of(fn)} yields rows, and map() must return one row for each"
        raise BadFunction(message, node=node, hint="use flat_map(), or return the row")
    check_call(fn, arguments, node)
    if schema is not None:
        return Schema(schema)
    annotated = _dataclass_of(_hints(fn).get("return"))
    return Schema(annotated) if annotated else given


def check_call(fn: Callable[..., Any], arguments: tuple[str, ...], node: str) -> None:
    """Refuse a function that cannot be called with so many arguments; callables without a signature are accepted."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        given = ", ".join(arguments)
        message = f"{name_of(fn)}{signature} cannot be called with ({given})"
        hint = f"it gets {len(arguments)} argument{'' if len(arguments) == 1 else 's'}: write def f({given})"
        raise BadFunction(message, node=node, hint=hint) from None


def raised(error: BaseException) -> str:
    """Return what a user's function raised, and its own line that did.

    The hint of an error of ours is left out: the caller has a better one.
    """
    message = error.message if isinstance(error, PenstockError) else str(error)
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not _is_ours(one.filename)]
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    line = f" ({frames[-1].line})" if frames and frames[-1].line else ""
    return f"{type(error).__name__}: {message}{where}{line}"


def _is_ours(filename: str) -> bool:
    """Return whether a line of code is Penstock's or Spark's."""
    return filename.startswith(_OWN) or f"{os.sep}pyspark{os.sep}" in filename


def name_of(fn: object) -> str:
    """Return a function's name, as its author would find it."""
    return str(getattr(fn, "__qualname__", None) or repr(fn))


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
