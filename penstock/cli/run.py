"""`penstock run`: run a pipeline in this process and show its progress."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from penstock.cli.options import LaneOption, OverloadOption, PaceOption, Target
from penstock.cli.progress import watch
from penstock.cli.run_summary import summary
from penstock.cli.shared_options import Sets
from penstock.cli.signals import stop_requested
from penstock.entry_points import load_entry
from penstock.settings import Settings

Until = Literal["stopped", "drained", "ended"]


def run(
    target: Target,
    sets: Sets = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile: section [profiles.NAME] of penstock.toml overrides [settings].")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder or URL of the checkpoint; a later run with it continues.")
    ] = None,
    until: Annotated[
        Until,
        typer.Option(
            help="stopped: until Ctrl-C. drained: until the available input is read; windows stay open. "
            "ended: the same, then the input ends and all windows are closed."
        ),
    ] = "stopped",
    pace: PaceOption = None,
    overload: OverloadOption = None,
    lane: LaneOption = None,
    allow_drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Accept that a changed node loses its state, repeatable."),
    ] = None,
) -> None:
    """Run a pipeline. Ctrl-C finishes the epoch and stops; the next run continues from there.

    Example: penstock run examples/vwap.py --until drained
    """
    settings = Settings.load(profile, lane=lane)
    pipeline = load_entry(target, sets or [])
    pipeline = pipeline.paced(pace, overload)
    typer.echo(f"{pipeline.name}: starting on Spark ({settings.master})", err=True)
    # A signal during Spark's start would leave its JVM running; it is handled once the run has started.
    with stop_requested(Console(stderr=True)) as asked:
        started = pipeline.start(until=until, checkpoint=checkpoint, settings=settings, allow_drop=allow_drop or [])
        if asked.is_set():
            started.stop()
    if notice := started.notice:
        typer.echo(notice)
    report = watch(started, pipeline.name)
    typer.echo(summary(pipeline.name, report))
