"""Options of the commands that send the source of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.errors import BadEntry

SourceTarget = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:name]|FOLDER[:FILE.py[:name]]",
        help="Python file, or a folder whose code is sent as a zip; and the pipeline if there are several.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Argument of the function that builds the pipeline, repeatable."),
]
SettingPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="KEY=VALUE", help="Setting of the job, such as checkpoint_interval=10s, repeatable."
    ),
]


def read_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Return the pairs of a repeatable KEY=VALUE; the last one of a key counts.

    >>> read_pairs("--set", ["window=30s", "rows=5"])
    {'window': '30s', 'rows': '5'}
    """
    pairs = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not (equals and key.strip()):
            message = f"{option} {text}: a key and a value are needed"
            raise BadEntry(message, hint=f"as in: {option} window=30s")
        pairs[key.strip()] = value
    return pairs
