"""Tables and JSON on standard output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import methodcaller
from typing import Annotated

import typer

Cell = str | int | None
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def show_table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows under a header; numbers are right-aligned, None is a dash."""
    texts = [list(head), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    aligned = [_align(texts, column, rows) for column in range(len(head))]
    for cells in zip(*aligned, strict=True):
        typer.echo("  ".join(cells).rstrip())


def _align(texts: list[list[str]], column: int, rows: Sequence[Sequence[Cell]]) -> list[str]:
    width = max(len(row[column]) for row in texts)
    put = str.ljust if any(isinstance(row[column], str) for row in rows) else str.rjust
    return [put(row[column], width) for row in texts]


def show_json(value: object) -> None:
    """Print a value as JSON; it may be, or contain, models of the REST API."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=methodcaller("model_dump", mode="json")))


def count_text(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> count_text(1, "record"), count_text(1200, "record")
    ('1 record', '1,200 records')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size: int) -> str:
    """Format a number of bytes.

    >>> size_text(900), size_text(5_300_000)
    ('900 B', '5.3 MB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
