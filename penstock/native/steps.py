"""The steps of a program: one piece of SQL per node, nested into one query."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.native.attempts import Attempt

INPUT = "penstock_input"
HIDDEN = "__penstock_"
TIME = "__penstock_time"
TICK = "__penstock_tick"
ROWS = "__penstock_rows"
PANE = "__penstock_pane"
REASON = "__penstock_reason"
ORIGIN = "__penstock_origin"


@dataclass(frozen=True)
class Step:
    """One node of the chain: `sql` reads `{input}`; `expression` is what an error shows.

    Rows on which one of `attempts` fails are rejected; where none are, `probes` say why the job stops.
    """

    node: str
    kind: str
    sql: str
    expression: str
    attempts: tuple[Attempt, ...] = ()
    probes: tuple[Attempt, ...] = ()


def compose(chain: tuple[Step, ...]) -> str:
    """Nest steps into one query over the input table."""
    sql = f"SELECT * FROM {INPUT}"
    for step in chain:
        sql = step.sql.format(input=f"({sql})")
    return sql


def quote(name: str) -> str:
    """Quote a name for DuckDB."""
    return '"' + name.replace('"', '""') + '"'
