"""The command line: one file per noun."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from penstock.cli.commands import Commands
from penstock.errors import PenstockError, SettingsError

app = typer.Typer(
    name="penstock",
    cls=Commands,
    help="Build streaming pipelines in Python and SQL, and run them exactly once on Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # reads a hundred files, which no other command needs

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; exit with 0 done, 1 the job failed, 2 the input is wrong."""
    try:
        app(prog_name="penstock")
    except PenstockError as error:
        _say(f"{type(error).__name__}: {error}")
        _say_debug()
        sys.exit(error.exit_code)
    except PermissionError as error:
        _say(f"SettingsError: {error.filename or error}: permission denied for this user")
        _say("  run as the user who owns it, or choose another path")
        _say_debug()
        sys.exit(SettingsError.exit_code)
    except Exception as error:
        _say(f"Unexpected {type(error).__name__}: {error}")
        if not _say_debug():
            _say("  This is a bug in Penstock. Please report it with what PENSTOCK_DEBUG=1 shows.")
        sys.exit(1)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _say_debug() -> bool:
    wanted = os.environ.get("PENSTOCK_DEBUG", "0") not in ("", "0")
    if wanted:
        traceback.print_exc()
    return wanted
