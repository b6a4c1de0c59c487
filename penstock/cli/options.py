"""Arguments and options of the commands that load a pipeline."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.plan.physical.overload import Overload
from penstock.plan.physical.pace import Pace
from penstock.settings import Lane

Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:name]|FILE.sql", help="Python file, and the pipeline if it has several; or an SQL file."
    ),
]
PaceOption = Annotated[
    Pace | None,
    typer.Option(
        "--pace",
        help="Override the pace. throughput: large epochs. fast: the shortest epochs. "
        "realtime: each row at once, from topic to topic, at least once.",
    ),
]
OverloadOption = Annotated[
    Overload | None,
    typer.Option(
        "--overload",
        help="Override the overload policy. block: rows wait in their source. drop: beyond max_lag_rows the oldest "
        "are dropped and counted. spill: they are moved from their source to the checkpoint.",
    ),
]
LaneOption = Annotated[
    Lane | None,
    typer.Option("--lane", help="auto: native execution where possible. spark: everything on Spark."),
]
