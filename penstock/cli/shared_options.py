"""Options that several commands share; a decorator adds those of a connection to the signature that Typer reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import typer

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Argument of the function that builds the pipeline, repeatable."),
]


def with_options(
    call: Callable[..., None],
    command: Callable[..., None],
    options: Mapping[str, inspect.Parameter],
    names: Mapping[str, Any],
) -> Callable[..., None]:
    """Give `call` the parameters of `command` without its first one, then the shared options.

    `names` are those of the command's annotations that exist for type checkers only.
    """
    hints = get_type_hints(command, localns=dict(names), include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    parameters = [*(each.replace(annotation=hints[each.name]) for each in own), *options.values()]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call
