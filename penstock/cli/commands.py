"""The commands, each imported when it is called: a broker should not wait for a parser of SQL."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

# name -> module and what it holds: an app of several commands, or one function
COMMANDS = {
    "run": "run:run",
    "explain": "explain:explain",
    "demo": "demo:demo",
    "checkpoints": "checkpoints:checkpoints",
    "savepoint": "savepoint:app",
    "state": "state:state",
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


class Commands(TyperGroup):
    """The top of the command line."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Return a command, loading the file that holds it."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"penstock.cli.{module}"), attribute)
        command = get_command(found if isinstance(found, typer.Typer) else _only(found))
        command.name = cmd_name
        return command


def _only(function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(function)
    return app
