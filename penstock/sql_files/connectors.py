"""The connectors that an SQL file can name, with their options: the parameters of the functions of the same names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_args

from penstock import sinks, sources
from penstock.contracts import Sink
from penstock.errors import BadEntry, choices
from penstock.schema import Schema
from penstock.sql_files.statements import Statement
from penstock.stream import Stream, View
from penstock.text_arguments import convert, read_arguments, type_hints

_SOURCES: dict[str, Callable[..., Stream]] = {
    "topic": sources.read_topic,
    "files": sources.read_files,
    "datagen": sources.datagen,
}
_SINKS: dict[str, Callable[..., Sink]] = {
    "topic": sinks.topic,
    "table": sinks.table,
    "files": sinks.files,
    "console": sinks.console,
}
# The parameter that is the name of the statement if it is not given.
_NAMED = {"topic": "name", "table": "name"}


def view_of(statement: Statement, where: str) -> View:
    """Return the view of CREATE TABLE: the last row of each primary key, or all rows."""
    function, options = _function(statement, _SOURCES, where)
    schema = Schema(statement.columns)
    # The columns are those of the statement.
    place = "what" if function is sources.datagen else "schema"
    _check_names(function, options, where, own=("remove",), done=place)
    remove = options.pop("remove", None)
    arguments = _arguments(function, options, where, done=place)
    stream: Stream = function(**{place: schema}, **arguments)
    return stream.named(statement.name).view(statement.key, remove=remove)


def sink_of(statement: Statement, where: str) -> tuple[Sink, bool]:
    """Return the sink of CREATE SINK, and whether it gets the whole view."""
    function, options = _function(statement, _SINKS, where)
    _check_names(function, options, where, own=("whole",))
    whole = convert(options.pop("whole", "false"), bool, f"{where}: whole")
    return function(**_arguments(function, options, where)), whole


def _check_names(
    function: Callable[..., Any], options: dict[str, str], where: str, own: tuple[str, ...], done: str = ""
) -> None:
    """Refuse options that neither the function has, without the parameter `done`, nor the statement: `own`."""
    known = [*(name for name in inspect.signature(function).parameters if name != done), *own]
    for name in options:
        if name not in known:
            message = f"{where} has no option '{name}'"
            raise BadEntry(message, hint=choices("options", dict.fromkeys(known), name))


def _arguments(function: Callable[..., Any], options: dict[str, str], where: str, done: str = "") -> dict[str, Any]:
    """Return the options as arguments; where several names are possible, they stand between commas."""
    found = read_arguments(function, options, where, option="{}", done=(done,))
    several = [name for name, kind in type_hints(function).items() if Sequence[str] in get_args(kind)]
    for name in several:
        if name in found:
            found[name] = tuple(part.strip() for part in found[name].split(","))
    return found


def _function(statement: Statement, known: dict[str, Any], where: str) -> tuple[Any, dict[str, str]]:
    options = dict(statement.options)
    name = options.pop("connector", "")
    if name not in known:
        message = f"{where}: unknown connector '{name}'" if name else f"{where}: no connector is given"
        raise BadEntry(message, hint=choices("connectors", [f"connector = '{one}'" for one in known], name))
    if name in _NAMED:
        options.setdefault(_NAMED[name], statement.name)
    return known[name], options
