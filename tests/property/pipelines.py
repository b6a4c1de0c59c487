"""Random small pipelines: what each branch computes, as a stream and, apart from our own code, as SQL."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

import penstock as ps
from tests.conftest import at

SCHEMA = "k string, v bigint, ts timestamp"
KEYS, SECONDS = 5, 100
# Longer than all of the input, so that no row is late and what is a duplicate does not depend on epochs.
DELAY = "1000s"
# So short that rows are late; which ones depends on epochs.
SHORT_DELAY = "5s"
Row = dict[str, Any]
Values = tuple[Any, ...]


def rows(seed: int, count: int) -> list[Row]:
    """Return some rows, out of order in time, a few of them twice."""
    chance = random.Random(seed)
    made: list[Row] = []
    for _ in range(count):
        if made and chance.random() < 0.1:
            made.append(dict(chance.choice(made)))
        else:
            seconds = chance.randrange(SECONDS * 1_000) / 1_000
            made.append({"k": f"k{chance.randrange(KEYS)}", "v": chance.randrange(-5, 20), "ts": at(seconds)})
    return made


class Running(ps.Process):
    """The number of a key's row and the sum so far: it depends on the order of the key's rows."""

    output = "k string, v bigint, number bigint, total bigint"
    number = ps.state.value(int)
    total = ps.state.value(int)

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        self.number.set((self.number.get() or 0) + 1)
        self.total.set((self.total.get() or 0) + row["v"])
        yield {"k": row["k"], "v": row["v"], "number": self.number.get(), "total": self.total.get()}


def _joined(stream: ps.Stream) -> ps.Stream:
    """Join the larger values of a key with the smaller ones of the next seconds."""
    both = stream.filter("v > 5").join(stream.filter("v <= 5"), on="k", within=("0s", "5s"))
    return both.select("k", "v", other="v_right")


@dataclass(frozen=True)
class Branch:
    """What becomes of the stream; `query` gives the same from the table `input`, whose `position` is the order.

    The rows of a branch with a `key` replace one another: the newest of each key counts. `rejects` is the condition
    for its rejected rows. The results of one with late rows are added up with them, by key.
    """

    build: Callable[[ps.Stream], ps.Stream]
    query: str
    columns: tuple[str, ...]
    key: str | None = None
    rejects: str | None = None
    has_late: bool = False


BRANCHES = {
    "rows": Branch(
        lambda stream: stream.filter("v > 0").select("k", "v", double="v * 2"),
        "SELECT k, v, v * 2 FROM input WHERE v > 0",
        ("k", "v", "double"),
    ),
    "function": Branch(
        lambda stream: stream.select("k", "v").map(lambda row: row | {"v": row["v"] + 1}),
        "SELECT k, v + 1 FROM input",
        ("k", "v"),
    ),
    "newest": Branch(
        lambda stream: stream.filter("v > -3").select("k", "v"),
        "SELECT k, v FROM input WHERE v > -3 QUALIFY row_number() OVER (PARTITION BY k ORDER BY position DESC) = 1",
        ("k", "v"),
        "k",
    ),
    "windows": Branch(
        lambda stream: (
            stream.event_time("ts", DELAY).key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)", sum="sum(v)")
        ),
        """SELECT k, time_bucket(INTERVAL 10 SECOND, ts) AS start, count(*), sum(v)::BIGINT
           FROM input GROUP BY k, start""",
        ("k", "window_start", "n", "sum"),
    ),
    "remainders": Branch(
        lambda stream: stream.select("k", "v", rest="100 % v"),
        "SELECT k, v, 100 % v FROM input WHERE v <> 0",
        ("k", "v", "rest"),
        rejects="v = 0",
    ),
    "sliding": Branch(
        lambda stream: (
            stream.event_time("ts", DELAY).key_by("k").window(ps.sliding("20s", "10s")).aggregate(sum="sum(v)")
        ),
        """SELECT k, time_bucket(INTERVAL 10 SECOND, ts) - earlier * INTERVAL 10 SECOND AS start, sum(v)::BIGINT
           FROM input, range(2) AS steps (earlier) GROUP BY k, start""",
        ("k", "window_start", "sum"),
    ),
    "sessions": Branch(
        lambda stream: (
            stream.event_time("ts", DELAY).key_by("k").window(ps.session("5s")).aggregate(n="count(*)", sum="sum(v)")
        ),
        """SELECT k, min(ts), count(*), sum(v)::BIGINT FROM (
             SELECT *, sum(opens) OVER (PARTITION BY k ORDER BY ts, position) AS session FROM (
               SELECT *, (ts > lag(ts, 1, ts - INTERVAL 1 DAY) OVER (PARTITION BY k ORDER BY ts, position)
                 + INTERVAL 5 SECOND)::INT AS opens FROM input)) GROUP BY k, session""",
        ("k", "window_start", "n", "sum"),
    ),
    "late": Branch(
        lambda stream: (
            stream.event_time("ts", SHORT_DELAY)
            .key_by("k")
            .window(ps.tumbling("10s"))
            .aggregate(n="count(*)", sum="sum(v)")
        ),
        "SELECT k, count(*), sum(v)::BIGINT FROM input GROUP BY k",
        ("k", "n", "sum"),
        has_late=True,
    ),
    "counted": Branch(
        lambda stream: stream.key_by("k").window(ps.count_window(4)).aggregate(n="count(*)", sum="sum(v)"),
        """SELECT k, (place - 1) // 4, count(*), sum(v)::BIGINT
           FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY position) AS place FROM input) GROUP BY ALL""",
        ("k", "window_number", "n", "sum"),
    ),
    "joined": Branch(
        lambda stream: _joined(stream.event_time("ts", DELAY)),
        """SELECT one.k, one.v, other.v FROM input one JOIN input other USING (k)
           WHERE one.v > 5 AND other.v <= 5 AND other.ts BETWEEN one.ts AND one.ts + INTERVAL 5 SECOND""",
        ("k", "v", "other"),
    ),
    "distinct": Branch(
        lambda stream: stream.event_time("ts", DELAY).deduplicate(["k", "v"], within=DELAY).select("k", "v"),
        "SELECT DISTINCT k, v FROM input",
        ("k", "v"),
    ),
    "firsts": Branch(
        lambda stream: ps.sql("SELECT DISTINCT k, v FROM input", input=stream),
        "SELECT k, max_by(v, first) FROM (SELECT k, v, min(position) AS first FROM input GROUP BY k, v) GROUP BY k",
        ("k", "v"),
        "k",
    ),
    "totals": Branch(
        lambda stream: stream.key_by("k").aggregate(n="count(*)", sum="sum(v)"),
        "SELECT k, count(*), sum(v)::BIGINT FROM input GROUP BY k",
        ("k", "n", "sum"),
        "k",
    ),
    "running": Branch(
        lambda stream: stream.key_by("k").process(Running()),
        """SELECT k, v, row_number() OVER earlier, sum(v) OVER earlier
           FROM input WINDOW earlier AS (PARTITION BY k ORDER BY position)""",
        ("k", "v", "number", "total"),
    ),
}


def expected(branch: str, given: list[Row]) -> list[Values]:
    """Return what a branch makes of the input, by DuckDB."""
    return _query(BRANCHES[branch].query, given)


def expected_rejects(branch: str, given: list[Row]) -> int:
    """Return how many rows a branch rejects, by DuckDB."""
    condition = BRANCHES[branch].rejects or "false"
    return int(_query(f"SELECT count(*) FROM input WHERE {condition}", given)[0][0])


def added_up(results: list[Values], late: list[Row]) -> list[Values]:
    """Return counts and sums by key, of results and late rows together: no row is missing, and none is in both."""
    totals: dict[str, list[int]] = {}
    for key, count, total in [*results, *((row["k"], 1, row["v"]) for row in late)]:
        known = totals.setdefault(key, [0, 0])
        known[0] += count
        known[1] += total
    return [(key, *total) for key, total in totals.items()]


def _query(query: str, given: list[Row]) -> list[Values]:
    columns = {name: [row[name] for row in given] for name in ("k", "v")}
    times = pa.array([row["ts"] for row in given], pa.timestamp("us", "UTC"))
    table = pa.table(columns | {"ts": times, "position": list(range(len(given)))})
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("input", table)
        return [tuple(map(plain, row)) for row in db.execute(query).fetchall()]


def plain(value: Any) -> Any:
    """Return a value as every sink's reader gives it: times as text."""
    if isinstance(value, str) and value[:2] == "20":
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else value
