"""A query as a job: its plan, and the code of a pipeline that runs it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import PipelineError
from penstock.pipeline import Pipeline
from penstock.plan.graph import upstream
from penstock.query.select import build
from penstock.sinks import console
from penstock.sql_console.statement import Statement
from penstock.sql_console.tables import Table
from penstock.stream import Stream

_NAME = "query"


def job_plan(statement: Statement, tables: Sequence[Table], bounded: Stream) -> str:
    """Return what `explain` prints for the query as a job; if it cannot be one, why, and its nodes."""
    try:
        note = f"as a job, {statement.left_out}\n\n" if statement.left_out else ""
        return note + _pipeline(statement, tables).explain()
    except PipelineError as error:
        nodes = "\n".join(f"  {node.kind:<12}  {node.detail}" for node in reversed(list(upstream(bounded.node))))
        why = f"as a job this query is refused: {error}"
        return f"{why}\n\nthe console runs it once, over the rows that it has read:\n{nodes}"


def job_code(statement: Statement, tables: Sequence[Table]) -> str:
    """Return the code of a pipeline that runs the query as a job."""
    try:
        _pipeline(statement, tables)
        refused = [f"# {statement.left_out}"] if statement.left_out else []
    except PipelineError as error:
        refused = [f"# as a job it is refused: {line.strip()}" for line in str(error).splitlines()[:1]]
    names = {table.name: table.name if table.name.isidentifier() else f"table_{n}" for n, table in enumerate(tables)}
    read = [f"{names[table.name]} = {table.timed_code}" for table in tables]
    plain = all(name == variable for name, variable in names.items())
    inputs = ", ".join(f"{name}={name}" for name in names) if plain else f"**{{{_pairs(names)}}}"
    text = statement.job_text
    marks = "'''" if '"""' in text or text.endswith('"') else '"""'
    raw = "r" if "\\" in text else ""
    lines = ["import penstock as ps", "", *read, "", *refused]
    lines += [f"result = ps.sql({raw}{marks}", text, f"{marks}, {inputs})", ""]
    return "\n".join([*lines, f'pipeline = ps.Pipeline("{_NAME}", result.to(ps.console()))', ""])


def _pipeline(statement: Statement, tables: Sequence[Table]) -> Pipeline:
    result = build(statement.job_text, {table.name: table.timed for table in tables})
    return Pipeline(_NAME, result.to(console()))


def _pairs(names: dict[str, str]) -> str:
    return ", ".join(f"{name!r}: {variable}" for name, variable in names.items())
