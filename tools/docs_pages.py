"""Pages of the documentation that are generated from the code; MkDocs calls the functions named `on_...`.

The command line comes from its commands, the settings and the errors from their classes, the REST API from its OpenAPI
schema, the contributing guide and the changelog from the root of the repository, and the list of decisions from their
titles.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONNECTOR = "how-to/write-a-connector.md"
DEBUG = "`PENSTOCK_DEBUG=1` adds a traceback to errors."
SETTINGS = """\
Arguments and flags win over `PENSTOCK_*` variables, those over `penstock.toml`, that over defaults:
[configure](../how-to/settings.md).

`connections` and `spark` are tables in `penstock.toml`, and `key=value,key=value` in a variable; they are merged key by
key."""
ERRORS = """\
Every error extends `ps.PenstockError`, which has `node`, `hint` and `transient` (a restart may help).

An error prints where it happened, what is wrong, what was found or allowed, and what to do:

```
UnknownColumn: aggregate 'vwap': unknown column 'pirce' in "sum(pirce * size) / sum(size)"
  columns here: symbol, price, size, ts      did you mean 'price'?
```
"""
REST = """\
The API of the [job manager](../how-to/jobs.md). A running one has the complete schema (OpenAPI 3.1) at
`/api/v1/openapi.json`. `ps.Client` and the command line use the same API.

- Every error is `application/problem+json` with `title` (the class of the [error](errors.md)), `detail` and `hint`.
- `{job}` is the id or the name of a job.
- Lists have `items` and `next`, the value of `cursor` for the next page, or null.
- Commands are stored and carried out afterwards: the response (202) is a command whose `state` is `open`, `done` or
  `failed`.
- With tokens, send `Authorization: Bearer TOKEN`; the table has the role that each request needs.
- `WS /api/v1/events` sends events as they happen, `?job=` those of one job."""
METRICS = """\
The job manager measures all jobs. `GET /metrics` has the newest values for Prometheus; `GET /api/v1/jobs/JOB/metrics`
has series: buckets of 10 seconds for an hour, of a minute for a day, of ten minutes for a month.

- **State of single nodes**: `state_rows` and `state_size_bytes` also have the label `node` (in the REST API the field
  `node` of a series). They are entries and bytes as Spark's state store counts them: where Penstock keeps state in
  buckets of keys, one entry may hold several keys.
- **Latency**: `latency_p50_ms`, `latency_p95_ms` and `latency_p99_ms` are the time from a record's timestamp in its
  topic (when it was produced, or appended, as the topic says) to the commit of its epoch in all sinks, over the records
  of one epoch. They are measured on a sample of up to 200 records of each fetch. The clocks of producers count: of one
  that is ahead the latency is 0. A backlog shows its age. Jobs that read no topic, and those that Spark's own
  connector reads (`pace="realtime"`), do not have them; all have `processing_latency_seconds`, the duration of epochs.
"""
DECISIONS = """\
Dated notes: what was decided, why, what else was considered, and what it costs. They describe the state at their date;
module paths in them may have moved since."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the page about connectors to the how-to guides, where it exists."""
    if (DOCS / CONNECTOR).is_file() and CONNECTOR not in repr(config.nav):
        guides = next(part["How-to"] for part in config.nav or [] if "How-to" in part)
        next(part["Build a pipeline"] for part in guides if "Build a pipeline" in part).append(CONNECTOR)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


def command_line() -> str:
    """Return every command with its arguments and options, as Typer writes them."""
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from penstock.cli import app

    command = get_command(app)
    text = get_docs_for_click(obj=command, ctx=command.context_class(command, info_name="penstock"), name="penstock")
    # Typer shortens the help in its lists of commands, and repeats --help with each of them.
    body = re.sub(r"(\*\*Options\*\*:\n\n)?\* `--help`: .*\n", "", text).replace("# `penstock`\n", "", 1)
    body = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+", "", body)
    return f"# Command line\n\nExit codes: 0 done, 1 the job failed while it ran, 2 the input is wrong. {DEBUG}\n{body}"


def settings() -> str:
    """Return every setting with its variable and its default."""
    from penstock import Settings

    described = _described(inspect.getdoc(Settings) or "", [part.name for part in fields(Settings)])
    rows = [
        [f"`{part.name}`", f"`PENSTOCK_{part.name.upper()}`", _default_of(part), described[part.name]]
        for part in fields(Settings)
    ]
    table = _table(["setting", "variable", "default", "meaning"], rows)
    return "\n".join(["# Settings", "", SETTINGS, "", *table, ""])


def _described(doc: str, names: list[str]) -> dict[str, str]:
    found = {
        match[1]: match[2] for match in re.finditer(r"^\s*(\w+):?\s+(.+)$", doc, re.MULTILINE) if match[1] in names
    }
    if missing := sorted({*names} - {*found}):
        message = f"Settings: no description of {', '.join(missing)} in the docstring"
        raise ValueError(message)
    return {name: _sentences(text) for name, text in found.items()}


def _default_of(part: Field[Any]) -> str:
    if part.default is MISSING:
        return "empty"
    return "none" if part.default is None else f"`{part.default}`"


def errors() -> str:
    """Return every error by family, with its exit code."""
    from penstock import errors as module

    lines = ["# Errors", "", ERRORS]
    for family in module.PenstockError.__subclasses__():
        known = [one for one in _subclasses(family) if one.__module__ == module.__name__]
        rows = [[f"`{one.__name__}`", _sentences(inspect.getdoc(one) or "")] for one in known]
        lines += [
            f"## {family.__name__}",
            "",
            f"{_sentences(inspect.getdoc(family) or '')} Exit code {family.exit_code}.",
        ]
        lines += ["", *_table(["error", "meaning"], rows), ""]
    return "\n".join(lines)


def _subclasses(family: type) -> Iterator[type]:
    for one in family.__subclasses__():
        yield one
        yield from _subclasses(one)


def rest_api() -> str:
    """Return every operation of the job manager's REST API, by noun."""
    lines = ["# REST API", "", REST]
    for noun, rows in _operations(_openapi_schema()).items():
        head = ["request", "meaning", "parameters", "success", "role"]
        lines += ["", f"## {noun.capitalize()}", "", *_table(head, rows)]
    return "\n".join([*lines, ""])


def _openapi_schema() -> dict[str, Any]:
    from penstock.control.rest.app import create_app

    nobody: Any = None  # the schema needs no manager
    return create_app(nobody).openapi()


def _operations(schema: dict[str, Any]) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            found.setdefault(operation["tags"][0], []).append(_operation(method, path, operation, schema))
    return found


def _operation(method: str, path: str, operation: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
    names += _fields_of_body(operation.get("requestBody", {}), schema)
    success = sorted(status for status in operation["responses"] if status.startswith("2"))
    return [
        f"`{method.upper()} {path}`",
        _sentences(operation.get("description", "")),
        ", ".join(f"`{name}`" for name in names),
        ", ".join(success),
        operation.get("x-role", ""),
    ]


def _fields_of_body(body: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    content = [one["schema"] for one in body.get("content", {}).values()]
    named = [
        part["$ref"].rpartition("/")[2] for one in content for part in [one, *one.get("anyOf", [])] if "$ref" in part
    ]
    return [field for name in named for field in schema["components"]["schemas"][name].get("properties", {})]


def metrics() -> str:
    """Return every metric of jobs and of the job manager."""
    from penstock.observe.declarations import METRICS as declared

    rows = [
        [f"`{one.name}`", f"`{one.series}`" if "job" in one.labels else "", one.kind, ", ".join(one.labels), one.help]
        for one in declared
    ]
    head = ["on /metrics", "in the REST API", "type", "labels", "meaning"]
    return "\n".join(["# Metrics", "", METRICS, "", *_table(head, rows), ""])


def decisions() -> str:
    """Return the list of decision notes."""
    lines = [f"- [{_title(path)}]({path.name})" for path in sorted((DOCS / "decisions").glob("0*.md"))]
    return "\n".join(["# Decisions", "", DECISIONS, "", *lines, ""])


def _title(path: Path) -> str:
    return path.read_text("utf-8").splitlines()[0].removeprefix("# ")


def _root_page(name: str) -> Callable[[], str]:
    return lambda: (ROOT / name).read_text("utf-8").replace("](docs/", "](")


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _sentences(text: str) -> str:
    # What looks like HTML in a docstring is meant as it is written.
    return re.sub(r"\s+", " ", text.split("\n>>>")[0]).strip().replace("<", "&lt;")


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": command_line,
    "reference/settings.md": settings,
    "reference/errors.md": errors,
    "reference/rest.md": rest_api,
    "reference/metrics.md": metrics,
    "decisions/index.md": decisions,
    "contributing.md": _root_page("CONTRIBUTING.md"),
    "changelog.md": _root_page("CHANGELOG.md"),
}
