"""`penstock jobs`: the jobs of a job manager."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.control.access import on_server
from penstock.cli.control.job_text import duration, epoch
from penstock.cli.tables import Cell, Json, show_json, show_table

if TYPE_CHECKING:
    from penstock.control.api.jobs import Job
    from penstock.control.client import Client

HEAD = ["job", "id", "state", "version", "epoch", "rows/s", "lag", "restarts", "age"]
ID_LENGTH = 8


@on_server
def jobs(
    client: Client,
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state: RUNNING, FAILED, STOPPED, ...", case_sensitive=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs with this text in their name.")] = None,
    json: Json = False,
) -> None:
    """List the jobs, newest first.

    Example: penstock jobs --state RUNNING
    """
    found = client.jobs(state=state and state.upper(), name=name)
    if json:
        show_json(found)
    else:
        show_table(HEAD, [row(job, datetime.now(UTC)) for job in found])


def row(job: Job, now: datetime) -> list[Cell]:
    """Return the cells of a job under HEAD."""
    rate = None if job.rows_per_second is None else f"{job.rows_per_second:,.0f}"
    lag = None if job.lag is None else f"{job.lag:,}"
    age = None if job.started_at is None else duration((job.ended_at or now) - job.started_at)
    return [job.name, job.id[:ID_LENGTH], job.state, job.version, epoch(job), rate, lag, job.restarts, age]
