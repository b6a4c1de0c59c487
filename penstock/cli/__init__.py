"""The command line: one module per command, imported when the command is called.

A broker should not wait for a parser of SQL, nor `penstock topic list` for Spark.
"""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from penstock.errors import PenstockError, SettingsError

# name -> module and what it defines: an app with several commands, or one function
COMMANDS = {
    "run": "run:run",
    "explain": "explain:explain",
    "demo": "demo:demo",
    "up": "control.manager:up",
    "server": "control.manager:server",
    "submit": "control.submit:submit",
    "jobs": "control.jobs:jobs",
    "job": "control.job:app",
    "logs": "control.logs:logs",
    "stop": "control.lifecycle:stop",
    "cancel": "control.lifecycle:cancel",
    "restart": "control.lifecycle:restart",
    "rescale": "control.lifecycle:rescale",
    "update": "control.update:update",
    "top": "control.top:top",
    "token": "control.token:app",
    "secret": "control.secret:app",
    "checkpoints": "checkpoints:checkpoints",
    "savepoint": "savepoint:app",
    "state": "state:state",
    "view": "view:view",
    "replay": "replay:replay",
    "log": "log:app",
    "topic": "topic:app",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "group": "group:app",
    "acl": "acl:app",
    "files": "files:app",
    "jars": "jars:app",
    "bench": "bench:app",
    "doctor": "doctor:doctor",
}


@dataclass(frozen=True)
class Completion:
    """A word that the shell may complete."""

    value: str
    type: str = "plain"
    help: str | None = None


class LazyCommands(TyperGroup):
    """The top-level commands; each module is imported when its command is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete a name; the inherited method would import every command for a line of help."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [Completion(name) for name in COMMANDS if name.startswith(incomplete)]

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Import the module of a command and return the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"penstock.cli.{module}"), attribute)
        command = get_command(found if isinstance(found, typer.Typer) else _single_command(found))
        command.name = cmd_name
        return command


def _single_command(function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(function)
    return app


def command_group(help: str) -> typer.Typer:
    """Return the app of a command with subcommands."""
    return typer.Typer(help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


app = typer.Typer(
    name="penstock",
    cls=LazyCommands,
    help="Build streaming pipelines in Python and SQL, and run them exactly once on Spark.",
    epilog="Start with `penstock demo`; `penstock COMMAND --help` shows the options and an example of each command.",
    no_args_is_help=True,
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
    """Run the command line; exit with 0 on success, 1 if the job failed, 2 if the input is wrong."""
    try:
        app(prog_name="penstock")
    except PenstockError as error:
        _print_error(f"{type(error).__name__}: {error}")
        _print_traceback()
        sys.exit(error.exit_code)
    except PermissionError as error:
        _print_error(f"SettingsError: {error.filename or error}: permission denied for this user")
        _print_error("  run as the user who owns it, or choose another path")
        _print_traceback()
        sys.exit(SettingsError.exit_code)
    except Exception as error:  # the last resort: users see one line and how to report it, not a traceback
        _print_error(f"Unexpected {type(error).__name__}: {error}")
        if not _print_traceback():
            _print_error("  This is a bug in Penstock. Please report it with what PENSTOCK_DEBUG=1 shows.")
        sys.exit(1)


def _print_error(text: str) -> None:
    print(text, file=sys.stderr)


def _print_traceback() -> bool:
    wanted = os.environ.get("PENSTOCK_DEBUG", "0") not in ("", "0")
    if wanted:
        traceback.print_exc()
    return wanted
