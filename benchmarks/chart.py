"""The picture of a bench: one horizontal bar per system and case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import OURS, display_name

COLORS = {"ours": "#0b7285", "others": "#adb5bd", "unequal": "#c92a2a"}


def draw(made: Mapping[str, Any], path: Path, figure: str = "rows_per_s", label: str = "rows per second") -> None:
    """Write a PNG; red marks results that are not equal to the right ones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = list(reversed(made["results"]))
    several = len({row["case"] for row in rows}) > 1
    names = [f"{row['case']}: {row['system']}" if several else display_name(row["system"]) for row in rows]
    values = [row[figure] for row in rows]
    picture = Figure(figsize=(9, 1.4 + 0.45 * len(rows)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    drawn = axes.barh(names, values, color=[_color(row) for row in rows])
    axes.bar_label(drawn, labels=[f"{value:,.0f}" for value in values], padding=4)
    axes.set_xlim(0, 1.15 * max([*values, 1]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    where = made["machine"]
    axes.set_title(f"{made['bench']}: {where['cores']} cores, Spark {where['spark']}, {where['date'][:10]}", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)


def _color(row: Mapping[str, Any]) -> str:
    if not row["equal"]:
        return COLORS["unequal"]
    return COLORS["ours" if row["system"] == OURS else "others"]
