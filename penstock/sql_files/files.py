"""An SQL file as a pipeline: its tables and views by their names, and an output for each INSERT."""

from __future__ import annotations

from pathlib import Path

from penstock.contracts import Sink
from penstock.errors import BadEntry, PenstockError, choices
from penstock.flows import Output
from penstock.pipeline import Pipeline
from penstock.sql_files.connectors import sink_of, view_of
from penstock.sql_files.statements import Statement, read_statements
from penstock.sql_views import sql_view
from penstock.stream import View


def pipeline_of_file(path: Path) -> Pipeline:
    """Return the pipeline of an SQL file, which has the file's name; errors have the line of their statement."""
    built = _Built(str(path))
    for statement in read_statements(path.read_text(encoding="utf-8"), str(path)):
        try:
            built.add(statement)
        except PenstockError as error:
            if not error.message.startswith(f"{path}:"):
                at = f"at {path}:{statement.line}"
                error.hint = f"{error.hint}\n  {at}" if error.hint else at
            raise
    if not built.outputs:
        message = f"{path} writes nothing"
        raise BadEntry(message, hint="end it with: INSERT INTO sink SELECT ... FROM view;")
    return Pipeline(path.stem, *built.outputs)


class _Built:
    """What the statements so far have made."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._views: dict[str, View] = {}
        self._sinks: dict[str, tuple[Sink, bool]] = {}
        self.outputs: list[Output] = []

    def add(self, statement: Statement) -> None:
        """Add a table, a view, a sink or an output."""
        where = f"{self._file}:{statement.line}: {statement.name}"
        if statement.kind == "insert":
            self.outputs.append(self._output(statement))
            return
        if statement.name in self._views or statement.name in self._sinks:
            message = f"{where} is defined twice"
            raise BadEntry(message, hint="give one of them another name")
        if statement.kind == "sink":
            self._sinks[statement.name] = sink_of(statement, where)
        elif statement.kind == "table":
            self._views[statement.name] = view_of(statement, where)
        else:
            self._views[statement.name] = self._view(statement)

    def _view(self, statement: Statement) -> View:
        if not self._views:
            message = f"{self._file}:{statement.line}: no table is defined before it"
            raise BadEntry(message, hint="begin with CREATE TABLE name (columns) WITH (connector = 'topic')")
        return sql_view(statement.query, **self._views)

    def _output(self, statement: Statement) -> Output:
        if statement.name not in self._sinks:
            message = f"{self._file}:{statement.line}: unknown sink '{statement.name}'"
            known = choices("sinks", self._sinks, statement.name) if self._sinks else "CREATE SINK comes before INSERT"
            raise BadEntry(message, hint=known)
        sink, whole = self._sinks[statement.name]
        return self._view(statement).named(statement.name).to(sink, whole=whole)
