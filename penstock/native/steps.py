"""The steps of a program: one piece of SQL per node, nested into one query; and the check of event times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from penstock.native.fallible_expressions import Attempt
from penstock.windows import TimeRange

INPUT = "penstock_input"
INTERNAL = "__penstock_"
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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def usable(column: str, times: TimeRange) -> str:
    """Return the condition, as DuckDB's SQL, that a time can be used; of a time that is null it is null."""
    return f"({column} >= make_timestamptz({times.first_us}) AND {column} < make_timestamptz({times.end_us}))"


def reasons(name: str, column: pa.ChunkedArray, times: TimeRange) -> list[str]:
    """Say of each time why it cannot be used."""
    early = f"event time '{name}' is before {_text(times.first_us)}, the earliest that can be used"
    late = f"event time '{name}' is not before {_text(times.end_us)}, the end of what can be used"
    return [
        f"event time '{name}' is null" if us is None else early if us < times.first_us else late
        for us in column.cast(pa.int64()).to_pylist()
    ]


def _text(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat().replace("+00:00", "Z")
