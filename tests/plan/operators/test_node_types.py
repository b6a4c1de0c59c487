"""Promise: a new operator touches four files. So no module asks which operator a node is; nodes say what they mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.plan import codec
from penstock.plan.operators.node import Node

ROOT = Path(__file__).parents[3] / "penstock"
# The roles that the graph itself is made of: sources, outputs, event times; and the one node that tables hang on.
ROLES = {"reads_in", "writes_in", "event_times_in", "table_joins_in"}


def operators(base: type[Node] = Node) -> set[str]:
    found = {base.__name__} if base.__module__.startswith("penstock.") else set()
    return found.union(*map(operators, base.__subclasses__()))


def checks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield where a file asks for the type of a node, in `isinstance` or in a `case`."""
    tree = ast.parse(path.read_text())
    allowed = {
        id(one) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name in ROLES for one in ast.walk(f)
    }
    known = operators() & imported(tree)
    for one in ast.walk(tree):
        asked: list[ast.AST] = []
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "isinstance":
            asked = list(ast.walk(one.args[1]))
        elif isinstance(one, ast.MatchClass):
            asked = list(ast.walk(one.cls))
        names = {name.id for name in asked if isinstance(name, ast.Name)} & known
        if names and id(one) not in allowed:
            yield one.lineno, ", ".join(sorted(names))


def imported(tree: ast.Module) -> set[str]:
    """The names that a module has of our plan; sqlglot has a Filter and a Join of its own."""
    lines = (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and one.module)
    ours = {name.asname or name.name for one in lines if str(one.module).startswith("penstock.") for name in one.names}
    return ours | {one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_lists_operators(path: Path) -> None:
    allowed = {"Node"}
    found = [(line, names) for line, names in checks(path) if set(names.split(", ")) - allowed]
    assert found == [], "declare it beside the node, or register it in a table of its concern"


def test_every_operator_of_ours_can_be_decoded() -> None:
    assert {"read", "filter", "explode", "join", "top", "write"} <= codec._kinds().keys()
