"""The import rules of the design: which room may know which."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "penstock").rglob("*.py"))
VALUES = {
    *("errors", "schema", "durations", "windows", "aggregates", "contracts", "report", "process", "state"),
    *("masking", "ddl"),
}


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, wherever in the file it does, by its full name."""
    package = [*path.relative_to(ROOT).with_suffix("").parts][:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}" for alias in node.names) if base == "penstock" else [base])


def room(path: Path) -> str:
    return path.relative_to(ROOT / "penstock").parts[0].removesuffix(".py")


def ours(path: Path) -> set[str]:
    """The rooms of ours that a file imports."""
    names = {name for name in imports(path) if name.split(".")[0] == "penstock"}
    return {[*name.split("."), "penstock"][1] for name in names}


def knows_spark(path: Path) -> bool:
    return any(name.split(".")[0] in ("pyspark", "py4j") for name in imports(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_room_may_know(path: Path) -> None:
    here = room(path)
    assert here == "spark" or not knows_spark(path), "only penstock/spark imports pyspark"
    if here == "plan":
        assert ours(path) <= VALUES | {"plan"}
    if here in ("native", "incremental", "control"):
        assert "spark" not in ours(path)
    if here in ("log", "observe"):
        assert ours(path) <= {here, "errors", "durations", "observe"}


def test_finding_java_needs_no_pyspark() -> None:
    assert not knows_spark(ROOT / "penstock" / "spark" / "java.py")


def test_tasks_do_not_load_the_sql_parser_or_duckdb_to_plan_a_scan() -> None:
    """Spark starts a process for each source of each query, and more to plan it: imports are most of their time."""
    heavy = ("sqlglot", "duckdb", "pandas")
    code = f"import sys, penstock.spark.epochs.scan; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
