"""The connectors that an SQL file can name, with their options: the parameters of the functions of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import sinks, sources
from penstock.contracts import Sink
from penstock.errors import BadEntry, choices
from penstock.schema import Schema
from penstock.sql_files.statements import Statement
from penstock.stream import Stream, View
from penstock.text_arguments import read_arguments

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
    remove = options.pop("remove", None)
    # The columns are those of the statement.
    place = "what" if function is sources.datagen else "schema"
    arguments = read_arguments(function, options, where, option="{}", done=(place,))
    stream: Stream = function(**{place: schema}, **arguments)
    return stream.view(statement.key, remove=remove)


def sink_of(statement: Statement, where: str) -> tuple[Sink, bool]:
    """Return the sink of CREATE SINK, and whether it gets the whole view."""
    function, options = _function(statement, _SINKS, where)
    whole = options.pop("whole", "false").lower() in ("true", "1", "yes")
    return function(**read_arguments(function, options, where, option="{}")), whole


def _function(statement: Statement, known: dict[str, Any], where: str) -> tuple[Any, dict[str, str]]:
    options = dict(statement.options)
    name = options.pop("connector", "")
    if name not in known:
        message = f"{where}: unknown connector '{name}'" if name else f"{where}: no connector is given"
        raise BadEntry(message, hint=choices("connectors", [f"connector = '{one}'" for one in known], name))
    if name in _NAMED:
        options.setdefault(_NAMED[name], statement.name)
    return known[name], options
