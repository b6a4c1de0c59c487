"""The picture of a bench: one horizontal bar per system and case, or lines over the size of the input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import OURS, display_name

COLORS = {"ours": "#0b7285", "others": "#adb5bd", "unequal": "#c92a2a", "memory": "#e8590c"}


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


def draw_series(made: Mapping[str, Any], path: Path) -> None:
    """Write a PNG with seconds and memory over each kind of size; cases are called KIND-NUMBER."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in made["results"] if row["seconds"]]
    kinds = list(dict.fromkeys(row["case"].split("-")[0] for row in rows))
    picture = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(picture)
    for number, kind in enumerate(kinds, start=1):
        axes = picture.add_subplot(1, len(kinds), number)
        _draw_lines(axes, kind, [row for row in rows if row["case"].startswith(f"{kind}-")])
    where, what = made["machine"], made["settings"]["format"]
    picture.suptitle(f"{made['bench']}: {what}, {where['cores']} cores, Spark {where['spark']}, {where['date'][:10]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)


def _draw_lines(axes: Any, kind: str, rows: list[Mapping[str, Any]]) -> None:
    sizes = [row[kind] for row in rows]
    axes.plot(sizes, [row["seconds"] for row in rows], marker="o", color=COLORS["ours"])
    axes.set(xscale="log", xlabel=kind, xticks=sizes, xticklabels=[f"{size:,}" for size in sizes], ylim=(0, None))
    axes.minorticks_off()
    axes.set_ylabel("seconds", color=COLORS["ours"])
    memory = axes.twinx()
    memory.plot(sizes, [row["peak_mb"] / 1024 for row in rows], marker="s", linestyle="--", color=COLORS["memory"])
    memory.set_ylim(0, None)
    memory.set_ylabel("peak memory, GiB", color=COLORS["memory"])


def _color(row: Mapping[str, Any]) -> str:
    if not row["equal"]:
        return COLORS["unequal"]
    return COLORS["ours" if row["system"] == OURS else "others"]
