"""Arguments: the texts after `--set` become what a function's annotations ask for."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.errors import BadEntry, choices


def read_sets(sets: Iterable[str]) -> dict[str, str]:
    """Return the pairs of `--set key=value`; the last one of a key counts."""
    pairs = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not (equals and key.strip()):
            message = f"--set {text}: a key and a value are needed"
            raise BadEntry(message, hint="as in: --set window=30s")
        pairs[key.strip()] = value
    return pairs


def read_arguments(function: Callable[..., Any], given: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the texts as the arguments that the function wants, or say which do not fit."""
    parameters = inspect.signature(function).parameters
    for key in given:
        if key not in parameters:
            message = f"{where} has no parameter '{key}'"
            raise BadEntry(message, hint=choices("parameters", parameters, key))
    for name, parameter in parameters.items():
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = parameter.default is parameter.empty and parameter.kind not in optional
        if needed and name not in given:
            message = f"{where} needs '{name}'"
            raise BadEntry(message, hint=f"give it: --set {name}=...")
    hints = type_hints(function)
    kinds = {key: hints.get(key, _kind_of_default(parameters[key])) for key in given}
    return {key: convert(text, kinds[key], f"{where}: --set {key}") for key, text in given.items()}


def _kind_of_default(parameter: inspect.Parameter) -> Any:
    return str if parameter.default in (parameter.empty, None) else type(parameter.default)


def convert(text: str, kind: Any, where: str) -> Any:
    """Read a text as what an annotation says: str, int, float, bool, a Literal, or one of these or None.

    >>> convert("1_000", int, "--set rows")
    1000
    """
    if get_origin(kind) in (Union, types.UnionType):
        if type(None) in get_args(kind) and text.lower() in ("", "none"):
            return None
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Literal:
        texts = {str(choice): choice for choice in get_args(kind)}
        if text not in texts:
            message = f"{where}={text} is not a choice"
            raise BadEntry(message, hint=choices("choices", texts, text))
        return texts[text]
    readers: dict[str, Callable[[str], Any]] = {
        "str": str,
        "int": int,
        "float": float,
        "bool": _bool,
        "Any": str,
    }
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    if name not in readers:
        message = f"{where}: a {name} cannot be given on the command line"
        raise BadEntry(message, hint="a parameter may be a str, int, float, bool or Literal")
    try:
        return readers[name](text)
    except ValueError as error:
        message = f"{where}={text} is not a {name}"
        raise BadEntry(message) from error


def _bool(text: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]


def type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations, as types where they can be had."""
    try:
        return get_type_hints(function)
    except Exception:
        # A name that only a type checker imports: the texts must do.
        return function.__annotations__
