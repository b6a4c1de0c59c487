"""Waiting for a job or a command: the state is shown while it changes; Ctrl-C stops waiting and harms nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

INTERRUPTED = 130


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Return a function that shows a state: in a line that is redrawn on a terminal, else one line per change."""
    console = Console(stderr=True)
    try:
        if console.is_terminal:
            with console.status(what) as status:
                yield lambda state: status.update(f"{what}: {state}")
        else:
            yield _Lines(what)
    except KeyboardInterrupt:
        typer.echo(f"\n{what}: no longer waiting; it goes on in the job manager", err=True)
        raise typer.Exit(INTERRUPTED) from None


class _Lines:
    def __init__(self, what: str) -> None:
        self._what, self._shown = what, ""

    def __call__(self, state: str) -> None:
        if state != self._shown:
            typer.echo(f"{self._what}: {state}", err=True)
        self._shown = state
