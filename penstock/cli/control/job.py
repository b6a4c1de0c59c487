"""`penstock job`: one job, its history and its plan."""

from __future__ import annotations

import json as encoder
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import command_group
from penstock.cli.control.access import JobName, Wait, on_server
from penstock.cli.control.commands import carry_out
from penstock.cli.control.job_text import duration, epoch, line, time_text, watermark_text
from penstock.cli.tables import Cell, Json, show_json, show_table

if TYPE_CHECKING:
    from penstock.control.api.fields import Response
    from penstock.control.api.jobs import Job
    from penstock.control.client import Client

Limit = Annotated[int, typer.Option(min=1, max=500, help="How many, newest first.")]

app = command_group("Show a job, its history and its plan; delete it.")


@app.command()
@on_server
def show(client: Client, job: JobName, json: Json = False) -> None:
    """Show a job: its state, progress, checkpoint and last error.

    Example: penstock job show vwap
    """
    found = client.job(job)
    if json:
        show_json(found)
        return
    typer.echo(line(found))
    for label, text in _facts(found).items():
        if text is not None:
            typer.echo(f"  {label:<12} {text}")


def _facts(job: Job) -> dict[str, object]:
    age = None if job.started_at is None else duration((job.ended_at or datetime.now(UTC)) - job.started_at)
    return {
        "created": time_text(job.created_at),
        "started": job.started_at and f"{time_text(job.started_at)} ({age})",
        "ended": time_text(job.ended_at),
        "epoch": epoch(job),
        "watermark": watermark_text(job.watermark, ended=job.ended_input),
        "rows/s": None if job.rows_per_second is None else f"{job.rows_per_second:,.0f}",
        "lag": None if job.lag is None else f"{job.lag:,} rows",
        "restarts": job.restarts,
        "restart at": time_text(job.restart_at),
        "until": job.until,
        "parallelism": job.parallelism,
        "pool": job.pool,
        "driver": job.pid and f"process {job.pid}",
        "checkpoint": job.checkpoint,
        "arguments": encoder.dumps(job.arguments) if job.arguments else None,
        "hint": job.error.hint if job.error else None,
    }


@app.command()
@on_server
def history(client: Client, job: JobName, limit: Limit = 100, json: Json = False) -> None:
    """List the transitions of a job's state, each with its cause.

    Example: penstock job history vwap
    """
    found = client.history(job, limit=limit)
    _list(found, ["at", "from", "to", "cause"], [[time_text(t.at), t.source, t.target, t.cause] for t in found], json)


@app.command()
@on_server
def epochs(client: Client, job: JobName, limit: Limit = 20, json: Json = False) -> None:
    """List the newest epochs of a job.

    Example: penstock job epochs vwap --limit 5
    """
    found = client.epochs(job, limit=limit)
    rows: list[list[Cell]] = [
        [
            e.number,
            time_text(e.at),
            e.rows_in,
            e.rows_out,
            e.late,
            e.rejected,
            round(e.duration_ms),
            watermark_text(e.watermark, ended=e.ended_input),
        ]
        for e in found
    ]
    _list(found, ["epoch", "at", "rows in", "rows out", "late", "rejected", "ms", "watermark"], rows, json)


@app.command()
@on_server
def exceptions(client: Client, job: JobName, limit: Limit = 20, json: Json = False) -> None:
    """List the newest errors of a job's runs.

    Example: penstock job exceptions vwap
    """
    found = client.exceptions(job, limit=limit)
    _list(found, ["at", "error", "message"], [[time_text(e.at), e.type, e.message.split("\n")[0]] for e in found], json)


@app.command()
@on_server
def savepoints(client: Client, job: JobName, limit: Limit = 100, json: Json = False) -> None:
    """List the savepoints of a job.

    Example: penstock job savepoints vwap
    """
    found = client.savepoints(job, limit=limit)
    rows: list[list[Cell]] = [[s.name, time_text(s.created_at), s.state, s.version, s.path] for s in found]
    _list(found, ["savepoint", "created", "state", "version", "path"], rows, json)


@app.command()
@on_server
def versions(client: Client, job: JobName, limit: Limit = 100, json: Json = False) -> None:
    """List the versions of a job's source.

    Example: penstock job versions vwap
    """
    found = client.versions(job, limit=limit)
    rows: list[list[Cell]] = [[v.number, time_text(v.created_at), v.entry, v.digest[:12], v.created_by] for v in found]
    _list(found, ["version", "created", "entry", "digest", "by"], rows, json)


@app.command()
@on_server
def plan(
    client: Client,
    job: JobName,
    json: Annotated[bool, typer.Option("--json", help="For scripts: a plan is always printed as JSON.")] = True,
) -> None:
    """Print the physical plan of a job's current version as JSON.

    Example: penstock job plan vwap
    """
    show_json(client.plan(job).plan)


@app.command()
@on_server
def savepoint(
    client: Client,
    job: JobName,
    name: Annotated[str | None, typer.Option(help="Name of the savepoint; default: the current time.")] = None,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Create a savepoint of a running job.

    Example: penstock job savepoint vwap --name before-upgrade
    """
    carry_out(client, client.savepoint(job, name), wait=wait, json=json)


@app.command()
@on_server
def delete(client: Client, job: JobName, wait: Wait = True, json: Json = False) -> None:
    """Delete a job that has ended, with its history and its checkpoint. Its output and savepoints stay.

    Example: penstock job delete vwap
    """
    carry_out(client, client.delete(job), wait=wait, json=json)


def _list(found: Sequence[Response], head: list[str], rows: list[list[Cell]], json: bool) -> None:
    if json:
        show_json([one.model_dump(mode="json", by_alias=True) for one in found])
    else:
        show_table(head, rows)
