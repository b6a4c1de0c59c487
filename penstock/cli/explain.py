"""`penstock explain`: show a pipeline's plan without running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from penstock.cli.options import LaneOption, OverloadOption, PaceOption, Target
from penstock.cli.shared_options import Sets
from penstock.entry_points import load_entry
from penstock.pipeline import Pipeline
from penstock.plan.physical.explain import explain as as_text
from penstock.plan.physical.plan import PhysicalPlan
from penstock.settings import Settings
from penstock.spark.checkpoints.physical_plan import plan_on
from penstock.storage.folders import folder

Format = Literal["text", "dot", "mermaid", "json"]


def explain(
    target: Target,
    sets: Sets = None,
    format: Annotated[Format, typer.Option(help="Output format; json is the physical plan.")] = "text",
    pace: PaceOption = None,
    overload: OverloadOption = None,
    lane: LaneOption = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of a checkpoint, whose queries stay as they are.")
    ] = None,
) -> None:
    """Show how a pipeline would run: as text, DOT, Mermaid or JSON (the physical plan), without running it.

    Example: penstock explain examples/vwap.py --format mermaid
    """
    pipeline = load_entry(target, sets or [])
    pipeline = pipeline.paced(pace, overload)
    write: dict[Format, Callable[[], str]] = {
        "text": lambda: as_text(_planned(pipeline, Settings.load(lane=lane), checkpoint)),
        "dot": pipeline.to_dot,
        "mermaid": pipeline.to_mermaid,
        "json": lambda: _planned(pipeline, Settings.load(lane=lane), checkpoint).to_json(),
    }
    typer.echo(write[format]().rstrip("\n"))


def _planned(pipeline: Pipeline, settings: Settings, checkpoint: str | None) -> PhysicalPlan:
    if checkpoint is None:
        return pipeline.physical_plan(settings)
    root, pace, overload = folder(checkpoint), pipeline.pace, pipeline.overload
    return plan_on(root, pipeline.name, pipeline.graph, settings, pace=pace, overload=overload)
