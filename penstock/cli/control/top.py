"""`penstock top`: the jobs in a table that is redrawn."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.control.access import on_server
from penstock.cli.control.jobs import HEAD, row
from penstock.cli.tables import Json, show_json, show_table
from penstock.errors import NoJobManager

if TYPE_CHECKING:
    from penstock.control.api.jobs import Job
    from penstock.control.client import Client

COLORS = {
    "RUNNING": "green",
    "FAILED": "red",
    "FAILING": "red",
    "RESTARTING": "yellow",
    "STARTING": "cyan",
    "STOPPING": "cyan",
    "CANCELLING": "cyan",
}
NUMBERS = ("version", "epoch", "rows/s", "lag", "restarts")


@on_server
def top(
    client: Client,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two requests.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    json: Json = False,
) -> None:
    """Watch the jobs live: state, epoch, rows per second, lag, restarts. Ctrl-C ends it.

    Without a terminal, and with --json, it prints the table once.

    Example: penstock top
    """
    console = Console()
    if json:
        show_json(_sorted(client.jobs()))
    elif once or not console.is_terminal:
        show_table(HEAD, [row(job, datetime.now(UTC)) for job in _sorted(client.jobs())])
    else:
        _watch(client, console, every)


def _watch(client: Client, console: Console, every: float) -> None:
    shown = client.jobs()
    try:
        with Live(view(shown, client.server, None), console=console, auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(every)
                lost = None
                try:
                    shown = client.jobs()
                except NoJobManager as error:
                    lost = error.message
                live.update(view(shown, client.server, lost), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit from None


def view(jobs: list[Job], server: str, lost: str | None) -> Group:
    """Return the title and the table; `lost` is why the table is old."""
    now = datetime.now(UTC)
    states = ", ".join(f"{count} {state}" for state, count in _states(jobs).items())
    title = Text.assemble((server, "bold"), f"  {now:%H:%M:%S} UTC  {states or 'no jobs'}  ", ("Ctrl-C ends", "dim"))
    return Group(title, *([Text(lost, "red")] if lost else []), _table(jobs, now))


def _states(jobs: list[Job]) -> dict[str, int]:
    states = [str(job.state) for job in jobs]
    return {state: states.count(state) for state in sorted({*states})}


def _table(jobs: list[Job], now: datetime) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in HEAD:
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for job in _sorted(jobs):
        cells = [Text("-" if cell is None else str(cell)) for cell in row(job, now)]
        cells[HEAD.index("state")].stylize(COLORS.get(str(job.state), "dim"))
        table.add_row(*cells)
    return table


def _sorted(jobs: list[Job]) -> list[Job]:
    """Sort jobs: active ones first, then by name."""
    return sorted(jobs, key=lambda job: (str(job.state) not in COLORS, job.name))
