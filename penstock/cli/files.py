"""`penstock files`: what a file sink wrote."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from penstock.errors import BadValue

app = typer.Typer(
    help="Look after the files that `files(...)` writes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@app.callback()
def _group() -> None:
    pass


@app.command("compact")
def compact(
    path: Annotated[str, typer.Argument(help="Folder or URL that a file sink writes to.")],
    below: Annotated[str, typer.Option(metavar="SIZE", help="Merge files that are smaller: 500KB, 64MB.")] = "64MB",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Merge small committed files, folder by folder; jobs may go on writing."""
    from penstock.connectors.file_sink.addresses import located, place
    from penstock.connectors.file_sink.compaction import Compaction, refuse_strange

    at = place(located(path))
    with at.failures("compact"):
        refuse_strange(at)
        done = Compaction(at).run(_bytes(below))
    if as_json:
        typer.echo(json.dumps(done.__dict__))
        return
    left = f"; {done.left} small ones are left, of newest epochs or alone in their folder" if done.left else ""
    typer.echo(f"{done.merged} files became {done.into}{left}")


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", size.strip())
    if found is None or found[2].upper() not in _UNITS:
        message = f"--below {size!r} is no size"
        raise BadValue(message, hint="write a number and a unit: 500KB, 64MB, 1GB")
    return int(found[1]) * _UNITS[found[2].upper()]
