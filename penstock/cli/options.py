"""The arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.plan.overload import Overload
from penstock.plan.pace import Pace
from penstock.settings import Lane

Target = Annotated[
    str,
    typer.Argument(metavar="FILE.py[:name]", help="The file, and which of its pipelines if it has several."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An argument of the function that builds the pipeline."),
]
PaceOption = Annotated[
    Pace | None,
    typer.Option(
        "--pace",
        help="Instead of the pipeline's own. throughput: epochs as large as pays. fast: the shortest epochs. "
        "realtime: each row at once, from topic to topic, at least once.",
    ),
]
OverloadOption = Annotated[
    Overload | None,
    typer.Option(
        "--overload",
        help="Instead of the pipeline's own. block: rows wait in their source. drop: of more than max_lag_rows the "
        "oldest are dropped and counted. spill: they are taken off their sender into the checkpoint.",
    ),
]
LaneOption = Annotated[
    Lane | None,
    typer.Option("--lane", help="auto: the native lane takes what it can. spark: all is left to Spark."),
]
