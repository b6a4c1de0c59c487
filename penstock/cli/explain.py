"""`penstock explain`: show a pipeline's plan without running it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from penstock.cli.options import LaneOption, OverloadOption, PaceOption, Sets, Target
from penstock.entries import load_entry
from penstock.settings import Settings

Format = Literal["text", "dot", "mermaid", "json"]


def explain(
    target: Target,
    sets: Sets = None,
    format: Annotated[Format, typer.Option(help="How the plan is written.")] = "text",
    pace: PaceOption = None,
    overload: OverloadOption = None,
    lane: LaneOption = None,
) -> None:
    """Show what a pipeline does, as text, as a drawing or as JSON; nothing is run."""
    pipeline = load_entry(target, sets or [])
    pipeline = pipeline.paced(pace, overload)
    write = {
        "text": lambda: pipeline.explain(Settings.load(lane=lane)),
        "dot": pipeline.to_dot,
        "mermaid": pipeline.to_mermaid,
        "json": pipeline.to_json,
    }[format]
    typer.echo(write().rstrip("\n"))
