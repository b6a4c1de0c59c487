"""The arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[
    str,
    typer.Argument(metavar="FILE.py[:name]", help="The file, and which of its pipelines if it has several."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An argument of the function that builds the pipeline."),
]
