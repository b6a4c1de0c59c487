"""Arguments that are written as text: on the command line, and in SQL files."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.errors import BadEntry, choices


def read_arguments(
    function: Callable[..., Any],
    given: Mapping[str, str],
    where: str,
    *,
    option: str = "--set {}",
    done: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the strings as arguments of the function, or raise BadEntry for those that do not fit.

    `option` is how an argument is written; `done` are parameters that have their values already.
    """
    parameters = {name: one for name, one in inspect.signature(function).parameters.items() if name not in done}
    for key in given:
        if key not in parameters:
            message = f"{where} has no parameter '{key}'"
            raise BadEntry(message, hint=choices("parameters", parameters, key))
    for name, parameter in parameters.items():
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = parameter.default is parameter.empty and parameter.kind not in optional
        if needed and name not in given:
            message = f"{where} needs '{name}'"
            raise BadEntry(message, hint=f"give it: {option.format(name)}=...")
    hints = type_hints(function)
    kinds = {key: hints.get(key, _kind_of_default(parameters[key])) for key in given}
    return {key: convert(text, kinds[key], f"{where}: {option.format(key)}") for key, text in given.items()}


def _kind_of_default(parameter: inspect.Parameter) -> Any:
    return str if parameter.default in (parameter.empty, None) else type(parameter.default)


def convert(text: str, kind: Any, where: str) -> Any:
    """Convert a string to the annotated type: str, int, float, bool, a Literal, one of several of these, or None.

    >>> convert("1_000", int, "--set rows")
    1000
    """
    if get_origin(kind) in (Union, types.UnionType):
        return _convert_to_one(text, get_args(kind), where)
    if get_origin(kind) is Literal:
        return _chosen(text, {str(choice): choice for choice in get_args(kind)}, where)
    if kind in (bool, "bool"):
        return _chosen(text.lower(), _BOOLEANS, where, what="a bool")
    readers: dict[str, Callable[[str], Any]] = {
        "str": str,
        "int": int,
        "float": float,
        "Any": str,
    }
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    if name not in readers:
        message = f"{where}: a {name} cannot be given on the command line"
        raise BadEntry(message, hint="a parameter may be a str, int, float, bool or Literal")
    try:
        return readers[name](text)
    except ValueError as error:
        message = f"{where}={text} is not {'an' if name == 'int' else 'a'} {name}"
        raise BadEntry(message, hint=f"write a number, as in {where.rpartition(' ')[2]}=10") from error


def _convert_to_one(text: str, kinds: tuple[Any, ...], where: str) -> Any:
    if type(None) in kinds and text.lower() in ("", "none"):
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    literals = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
    if len(kinds) > 1 and literals:
        known = {str(choice): choice for choice in (choice for one in literals for choice in one)}
        return _chosen(text.lower(), (_BOOLEANS if bool in kinds else {}) | known, where)
    return convert(text, kinds[0], where)


_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


def _chosen(text: str, known: Mapping[str, Any], where: str, what: str = "a choice") -> Any:
    if text not in known:
        message = f"{where}={text} is not {what}"
        raise BadEntry(message, hint=choices("choices", known, text))
    return known[text]


def type_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations, as types where they can be evaluated."""
    try:
        return get_type_hints(function)
    except Exception:
        # The user's annotations may raise anything, and ours name types that are imported for checking only.
        return {name: _evaluated(text, function) for name, text in function.__annotations__.items()}


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, vars(sys.modules[function.__module__]))
    except Exception:
        return annotation
