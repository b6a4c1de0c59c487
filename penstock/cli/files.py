"""`penstock files`: maintenance of the files that file sinks write."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from penstock.cli import command_group
from penstock.errors import BadValue

app = command_group("Maintain the files that the sink `files(...)` writes.")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@app.callback()
def _group() -> None:
    pass


@app.command("compact")
def compact(
    path: Annotated[str, typer.Argument(help="Folder or URL that a file sink writes to.")],
    below: Annotated[str, typer.Option(metavar="SIZE", help="Merge files below this size: 500KB, 64MB.")] = "64MB",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Merge small committed files, folder by folder; jobs may keep writing.

    Example: penstock files compact out/vwap --below 16MB
    """
    from penstock.connectors.files.compaction import Compaction, check_target
    from penstock.storage.stores import open_store, resolve_url

    at = open_store(resolve_url(path))
    with at.translated_errors("compact"):
        check_target(at)
        done = Compaction(at).run(_bytes(below))
    if as_json:
        typer.echo(json.dumps(done.__dict__))
        return
    left = f"; {done.left} small ones are left, of newest epochs or alone in their folder" if done.left else ""
    typer.echo(f"{done.merged} files became {done.into}{left}")


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", size.strip())
    if found is None or found[2].upper() not in _UNITS:
        message = f"--below {size!r} is not a size"
        raise BadValue(message, hint="write a number and a unit: 500KB, 64MB, 1GB")
    return int(found[1]) * _UNITS[found[2].upper()]
