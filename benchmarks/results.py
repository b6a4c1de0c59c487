"""What every bench writes: one JSON document, a table, a chart."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from penstock.settings import cores
from penstock.spark.session.java import find_java

OURS = "penstock"
BATCH = ("duckdb",)
MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("-", "dim")}


@dataclass(frozen=True)
class Result:
    """One system in one case; `extra` is what only this bench measures."""

    system: str
    case: str
    rows_per_s: float
    seconds: float
    peak_mb: float | None
    equal: bool
    extra: Mapping[str, float | None] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a flat object of the document."""
        flat = asdict(self)
        return {**{name: flat[name] for name in flat if name != "extra"}, **self.extra}


@dataclass(frozen=True)
class Bar:
    """What Penstock has to reach; `reached` is None where a run cannot say."""

    text: str
    reached: bool | None


def document(bench: str, settings: Mapping[str, Any], results: Iterable[Result]) -> dict[str, Any]:
    """Return the document that is written as JSON."""
    results = list(results)
    return {
        "bench": bench,
        "machine": machine(),
        "settings": dict(settings),
        "results": [result.as_dict() for result in results],
        "ratios": ratios(results),
    }


def machine() -> dict[str, Any]:
    """Describe where this runs."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "java": find_java().version,
        "spark": version("pyspark"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def ratios(results: Iterable[Result]) -> dict[str, float]:
    """Return by how much Penstock is faster than each other, per case where there are several.

    >>> ratios([Result("penstock", "a", 300.0, 1, 1, True), Result("spark", "a", 200.0, 1, 1, True)])
    {'penstock/spark': 1.5}
    """
    results = [result for result in results if result.rows_per_s]
    ours = {result.case: result for result in results if result.system == OURS}
    several = len({result.case for result in results}) > 1
    return {
        f"{OURS}/{other.system}{':' + other.case if several else ''}": round(
            ours[other.case].rows_per_s / other.rows_per_s, 3
        )
        for other in results
        if other.system != OURS and other.case in ours
    }


def display_name(system: str) -> str:
    """Return a system's name for people, who should not take a batch system for a peer."""
    return f"{system} (batch)" if system in BATCH else system


def save(made: Mapping[str, Any], path: Path) -> None:
    """Write the document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=2) + "\n")


def show(made: Mapping[str, Any], note: str, against: Iterable[Bar] = ()) -> None:
    """Print the table, what was left out, and the bars."""
    console = Console()
    where = made["machine"]
    console.print(f"{made['bench']}: {where['cpu']}, {where['cores']} cores, {where['memory_gb']} GiB", style="bold")
    console.print(_table(made["results"]))
    console.print(" ".join(note.split()), style="dim", highlight=False)
    for name, why in made["settings"].get("skipped", {}).items():
        console.print(f"- {name}: skipped: {why}", style="yellow", highlight=False)
    for bar in against:
        mark, style = MARKS[bar.reached]
        console.print(f"{mark} {bar.text}", style=style, highlight=False)


def _table(results: list[dict[str, Any]]) -> Table:
    extra = [name for name in results[0] if name not in Result.__annotations__] if results else []
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("system", "case"):
        table.add_column(name, no_wrap=True)
    for name in ("rows/s", "seconds", *extra, "peak MB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("equal", no_wrap=True)
    for row in results:
        speed = f"{row['rows_per_s']:,.0f}" if row["rows_per_s"] else "-"
        figures = [speed, f"{row['seconds']:.2f}", *(_figure(row[name]) for name in extra)]
        equal = "[green]yes[/]" if row["equal"] else "[red]NO[/]"
        table.add_row(
            display_name(row["system"]), row["case"], *figures, _figure(row["peak_mb"] and round(row["peak_mb"])), equal
        )
    return table


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
