"""`penstock run`: run a pipeline here and show how it goes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from penstock.cli.options import LaneOption, OverloadOption, PaceOption, Sets, Target
from penstock.cli.signals import asked_to_stop
from penstock.cli.summary import summary
from penstock.cli.view import watch
from penstock.entries import load_entry
from penstock.settings import Settings

Until = Literal["stopped", "drained", "ended"]


def run(
    target: Target,
    sets: Sets = None,
    profile: Annotated[
        str | None, typer.Option(help="Section [profiles.NAME] of penstock.toml to lay over [settings].")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the checkpoint; run again from it to go on.")
    ] = None,
    until: Annotated[
        Until,
        typer.Option(
            help="stopped: until Ctrl-C. drained: until the input that is there is read; windows stay open. "
            "ended: the same, and all windows are closed for good."
        ),
    ] = "stopped",
    pace: PaceOption = None,
    overload: OverloadOption = None,
    lane: LaneOption = None,
    allow_drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Accept that a changed node loses its state; may be given several times."),
    ] = None,
) -> None:
    """Run a pipeline here. Ctrl-C finishes the epoch and stops; the next run goes on from there."""
    settings = Settings.load(profile, lane=lane)
    pipeline = load_entry(target, sets or [])
    pipeline = pipeline.paced(pace, overload)
    typer.echo(f"{pipeline.name}: starting on Spark ({settings.master})", err=True)
    # A signal in the middle of Spark's start would leave its JVM behind; it is heeded as soon as there is a run.
    with asked_to_stop(Console(stderr=True)) as asked:
        started = pipeline.start(until=until, checkpoint=checkpoint, settings=settings, allow_drop=allow_drop or [])
        if asked.is_set():
            started.stop()
    if notice := getattr(started, "notice", None):
        typer.echo(notice)
    report = watch(started, pipeline.name)
    typer.echo(summary(pipeline.name, report))
