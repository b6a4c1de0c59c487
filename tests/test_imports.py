"""The import rules of the design: what each package may import, wherever in a file it does so.

Imports inside functions and under TYPE_CHECKING count like any other: a cycle through a lazy import is a cycle.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PENSTOCK = ROOT / "penstock"
FILES = sorted(PENSTOCK.rglob("*.py"))

# Values that a user writes down or is given: each may import those to its left.
_ORDERED = [
    "errors",
    "ddl",
    "durations",
    "quoted_secrets",
    "masking",
    "secret_references",
    "schema",
    "signatures",
    "windows",
    "aggregates",
    "state",
    "process",
    "report",
    "settings",
]
VALUES = {*_ORDERED, "contracts"}
PLANNING = VALUES - {"settings", "report"}
BUILDERS = {"argument_checks", "tables", "flows", "views", "stream"}
SQL = {"query", "sql", "sql_views", "sql_files", "text_arguments"}
API = {*BUILDERS, *SQL, "sources", "sinks", "pipeline", "contract_suite", "testing", "entry_points"}

# Package, or module of the top level -> what of ours it may import. No entry may lead back to itself.
RULES: dict[str, set[str]] = {
    **{name: {*_ORDERED[:place]} for place, name in enumerate(_ORDERED)},
    "observe": set(),
    "storage": {"errors", "masking"},
    "kafka": {"errors", "masking"},
    "values": {"errors", "schema"},
    "contracts": {*_ORDERED, "storage"},
    "plan": PLANNING,
    "native": PLANNING | {"plan", "values", "connectors", "rejected"},
    "keyed": PLANNING | {"native", "storage", "values"},
    "incremental": PLANNING | {"plan", "native", "keyed", "values"},
    "connectors": VALUES | {"values", "storage", "kafka"},
    "rejected": VALUES | {"plan", "values", "storage", "connectors"},
    # It speaks to a log as any client does, by Kafka's protocol.
    "registry": {"errors", "durations", "masking", "schema", "storage", "kafka", "observe"},
    "log": {"errors", "durations", "masking", "storage", "kafka", "observe"},
    "spark": VALUES
    | {"plan", "native", "keyed", "incremental", "connectors", "rejected", "values", "storage", "kafka", "observe"},
    # It starts jobs as processes of their own, so that no JVM and no user's code is in it.
    "control": VALUES | {"plan", "storage", "connectors", "observe"},
    "dashboard": {"control"},
    "argument_checks": PLANNING | {"plan", "tables"},
    "tables": VALUES | {"connectors"},
    "flows": PLANNING | {"plan", "argument_checks"},
    "views": PLANNING | {"plan", "argument_checks", "flows"},
    "stream": PLANNING | {"plan", "argument_checks", "tables", "flows", "views"},
    "query": PLANNING | {"plan", "stream"},
    "sql": PLANNING | {"plan", "query", "stream"},
    "sql_views": PLANNING | {"plan", "query", "stream", "views"},
    "sources": VALUES | BUILDERS | {"plan", "connectors"},
    "sinks": VALUES | {"connectors"},
    "pipeline": VALUES | BUILDERS | {"plan", "connectors", "storage", "spark"},
    "contract_suite": VALUES | {"storage", "spark"},
    "testing": VALUES | {"plan", "keyed", "connectors", "storage", "spark", "pipeline", "contract_suite"},
    "text_arguments": {"errors"},
    "process_limits": set(),
    "sql_files": VALUES | {"query", "sql_views", "stream", "flows", "sources", "sinks", "pipeline", "text_arguments"},
    "entry_points": VALUES | {"pipeline", "sql_files", "text_arguments"},
    # The process of a job: the only part of the job manager with Spark and the user's code in it.
    "driver": VALUES
    | API
    | {"plan", "native", "connectors", "rejected", "storage", "spark", "observe", "process_limits"},
    "penstock": VALUES | API | {"control", "incremental"},
    # A process of its own, which the job manager starts for what users write in SQL.
    "sql_console": VALUES | API | {"plan", "native", "connectors", "process_limits"},
    "demo": {"penstock", "connectors"},
    "cli": VALUES
    | API
    | {"penstock", "plan", "connectors", "rejected", "storage", "kafka", "spark"}
    | {"log", "registry", "control", "dashboard", "observe", "demo"},
    "__main__": {"cli"},
}
# Inside of spark each layer may import those to its left.
SPARK_LAYERS = ("session", "tasks", "lowering", "epochs", "checkpoints", "runs")
# Inside of control: part -> the parts that it may import. The state machine and the autoscaler's decisions are pure.
CONTROL = {
    "policy_options": set(),
    "machine": {"policy_options"},
    "autoscaling": {"policy_options"},
    "api": {"machine"},
    "store": set(),
    "security": {"store"},
    "client": {"api"},
    "broker": {"api"},
    "rest": {"api", "broker"},
    # Of rest it implements the protocol in rest/manager.py.
    "supervisor": {"api", "autoscaling", "machine", "rest", "security", "store"},
    "server": {"broker", "rest", "security", "store", "supervisor"},
}
PURE = ("penstock.control.machine", "penstock.control.autoscaling", "penstock.control.policy_options")
NOT_PURE = {"asyncio", "os", "random", "socket", "subprocess", "threading", "time", "sqlalchemy", "psutil"}
# Of control, the dashboard knows what any client may know.
CONTROL_FOR_CLIENTS = ("penstock.control.client", "penstock.control.api")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def package_of(module: str) -> str:
    """Return the package, or the module of the top level, that a module of ours belongs to."""
    return [*module.split("."), "penstock"][1]


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the modules that a file imports, by their full names."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            names = (f"{base}.{alias.name}" for alias in node.names)
            yield from (name if base.startswith("penstock") and is_module(name) else base for name in names)


def breaks_a_rule(importer: str, imported: str) -> bool:
    here, there = package_of(importer), package_of(imported)
    if here == there == "spark":
        return _layer(imported, default=0) > _layer(importer, default=len(SPARK_LAYERS))
    if here == there == "control":
        return breaks_a_rule_of_control(importer, imported)
    if here == "dashboard" and there == "control":
        return not imported.startswith(CONTROL_FOR_CLIENTS)
    return here != there and there not in RULES.get(here, ())


def breaks_a_rule_of_control(importer: str, imported: str) -> bool:
    here, there = (([*module.split("."), "", ""])[2] for module in (importer, imported))
    return here != there and there not in CONTROL.get(here, ())


def _layer(module: str, default: int) -> int:
    layer = [*module.split("."), ""][2]
    return SPARK_LAYERS.index(layer) if layer in SPARK_LAYERS else default


def broken() -> set[tuple[str, str]]:
    """Return every import of ours that breaks a rule."""
    ours = {(module_of(path), name) for path in FILES for name in imports(path) if name.split(".")[0] == "penstock"}
    return {pair for pair in ours if breaks_a_rule(*pair)}


def test_the_rules_have_no_cycle() -> None:
    TopologicalSorter(RULES).prepare()


def test_every_package_has_a_rule() -> None:
    assert {package_of(module_of(path)) for path in FILES} <= {*RULES}


def test_every_import_follows_the_rules() -> None:
    assert sorted(broken()) == []


def test_only_the_spark_package_imports_pyspark() -> None:
    found = [path for path in FILES if knows_pyspark(path)]
    assert {package_of(module_of(path)) for path in found} == {"spark"}


def test_the_state_machine_and_the_autoscaler_are_pure() -> None:
    """No clock, no random and no I/O of their own."""
    found = {(module_of(path), name) for path in FILES if module_of(path).startswith(PURE) for name in imports(path)}
    assert sorted((module, name) for module, name in found if name.split(".")[0] in NOT_PURE) == []


def test_the_job_manager_loads_neither_spark_nor_the_libraries_of_pipelines() -> None:
    """It stays small, and no user's code runs in it: a job is a process of its own."""
    heavy = ("pyspark", "py4j", "pyarrow", "duckdb", "pandas", "numpy", "sqlglot", "confluent_kafka")
    code = f"import sys, penstock.control.server; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def knows_pyspark(path: Path) -> bool:
    return any(name.split(".")[0] in ("pyspark", "py4j") for name in imports(path))


def test_finding_java_needs_no_pyspark() -> None:
    (java,) = (PENSTOCK / "spark").rglob("java.py")
    assert not knows_pyspark(java)


def test_tasks_do_not_load_the_sql_parser_or_duckdb_to_plan_a_scan() -> None:
    """Spark starts a process for each source of each query, and more to plan it: imports are most of their time."""
    heavy = ("sqlglot", "duckdb", "pandas")
    code = f"import sys, penstock.spark.tasks.scan; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
