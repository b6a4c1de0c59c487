"""Promise: results do not depend on where epochs end, on the lane or the parallelism, at any time that can be used.

Rows lie around a few instants of the whole range, its ends and 1970 among them; each result is compared with a plain
loop over the rows. Times out of range are rejected, and nothing else is.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, run_to_end
from tests.conftest import at_parallelism

SCHEMA = "k string, v bigint, ts timestamp"
FIRST, END = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
US, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
# Rows of an instant are at most 80 s apart, and come instant by instant: none is late.
DELAY = "100s"
INSTANTS = (
    FIRST,
    datetime(1582, 10, 15, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 20, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(9000, 1, 1, tzinfo=UTC),
    END - 80 * SECOND,
)
OUTSIDE = (FIRST - US, datetime(1, 1, 1, tzinfo=UTC), END, datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None)
Row = dict[str, Any]
Values = tuple[Any, ...]


def rows(seed: int) -> list[Row]:
    """Return some rows, in order of instants; many are whole seconds apart, or a microsecond more or less."""
    chance = random.Random(seed)
    found: list[Row] = []
    for instant in sorted(chance.sample(INSTANTS, 3)):
        for _ in range(chance.randrange(5, 25)):
            apart = chance.randrange(80) * SECOND + chance.choice([timedelta(0), timedelta(0), US, SECOND - US])
            ts = chance.choice(OUTSIDE) if chance.random() < 0.05 else instant + apart
            found.append({"k": chance.choice("ab"), "v": len(found), "ts": ts})
    return found


def usable(given: list[Row]) -> list[Row]:
    return [row for row in given if row["ts"] is not None and FIRST <= row["ts"] < END]


class Timers(ps.Process):
    """Tells of every row 5 s later, by a timer."""

    output = "k string, name string, due timestamp"

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Row]:
        ctx.set_timer(row["ts"] + 5 * SECOND, name=str(row["v"]))
        return iter(())

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[Row]:
        yield {**ctx.key, "name": timer.name, "due": timer.at}


def deduplicated(given: list[Row]) -> Iterator[Values]:
    kept: dict[str, list[datetime]] = defaultdict(list)
    for row in given:
        if all(abs(row["ts"] - other) > 7 * SECOND for other in kept[row["k"]]):
            kept[row["k"]].append(row["ts"])
            yield row["k"], row["v"]


def tumbling(given: list[Row]) -> Iterator[Values]:
    counts = Counter((row["k"], _start(row["ts"], 7, 3)) for row in given)
    return ((k, start, start + 7 * SECOND, n) for (k, start), n in counts.items())


def sliding(given: list[Row]) -> Iterator[Values]:
    starts = ((row["k"], _start(row["ts"], 4, 0) - back * SECOND) for row in given for back in (0, 4, 8))
    inside = Counter(starts)
    return ((k, start, start + 12 * SECOND, n) for (k, start), n in inside.items())


def _start(ts: datetime, seconds: int, offset: int) -> datetime:
    since = ts - datetime(1970, 1, 1, tzinfo=UTC) - offset * SECOND
    return ts - since % (seconds * SECOND)


def sessions(given: list[Row], longest: timedelta | None = None) -> Iterator[Values]:
    for k in "ab":
        times = sorted(row["ts"] for row in given if row["k"] == k)
        while times:
            last = 0
            for number, ts in enumerate(times):
                near = number == 0 or ts - times[number - 1] <= 6 * SECOND
                if not near or (longest is not None and ts - times[0] >= longest):
                    break
                last = number
            end = times[last] + 6 * SECOND
            yield k, times[0], end if longest is None else min(end, times[0] + longest), last + 1
            times = times[last + 1 :]


def joined(given: list[Row]) -> Iterator[Values]:
    for one in (row for row in given if row["v"] % 2):
        for other in (row for row in given if row["v"] % 2 == 0 and row["k"] == one["k"]):
            if timedelta(0) <= other["ts"] - one["ts"] <= 5 * SECOND:
                yield one["k"], one["v"], other["v"]


def outer_joined(given: list[Row]) -> Iterator[Values]:
    met = list(joined(given))
    lonely = (row for row in given if row["v"] % 2 and row["v"] not in {one[1] for one in met})
    return iter([*met, *((row["k"], row["v"], None) for row in lonely)])


def last_before(given: list[Row]) -> Iterator[Values]:
    for one in (row for row in given if row["v"] % 2):
        others = [row for row in given if row["v"] % 2 == 0 and row["k"] == one["k"] and row["ts"] <= one["ts"]]
        yield one["k"], one["v"], max((row["ts"] for row in others), default=None)


def timers(given: list[Row]) -> Iterator[Values]:
    return ((row["k"], str(row["v"]), row["ts"] + 5 * SECOND) for row in given)


@dataclass(frozen=True)
class Branch:
    """What becomes of a stream with event time, and what of its rows."""

    build: Callable[[ps.Stream], ps.Stream]
    expected: Callable[[list[Row]], Iterator[Values]]
    columns: tuple[str, ...]


def _windowed(window: ps.Window) -> Callable[[ps.Stream], ps.Stream]:
    return lambda stream: stream.key_by("k").window(window).aggregate(n="count(*)")


def _joined(stream: ps.Stream, how: Any) -> ps.Stream:
    return stream.filter("v % 2 = 1").join(stream.filter("v % 2 = 0"), on="k", how=how, within=("0s", "5s"))


_WINDOW = ("k", "window_start", "window_end", "n")
BRANCHES = {
    "deduplicated": Branch(lambda stream: stream.deduplicate("k", within="7s"), deduplicated, ("k", "v")),
    "tumbling": Branch(_windowed(ps.tumbling("7s", offset="3s")), tumbling, _WINDOW),
    "sliding": Branch(_windowed(ps.sliding("12s", "4s")), sliding, _WINDOW),
    "session": Branch(_windowed(ps.session("6s")), sessions, _WINDOW),
    "cut": Branch(_windowed(ps.session("6s", max_length="15s")), lambda given: sessions(given, 15 * SECOND), _WINDOW),
    "joined": Branch(lambda stream: _joined(stream, "inner"), joined, ("k", "v", "v_right")),
    "outer": Branch(lambda stream: _joined(stream, "left"), outer_joined, ("k", "v", "v_right")),
    "asof": Branch(
        lambda stream: stream.filter("v % 2 = 1").join_asof(stream.filter("v % 2 = 0"), on="k"),
        last_before,
        ("k", "v", "ts_right"),
    ),
    "timers": Branch(lambda stream: stream.key_by("k").process(Timers()), timers, ("k", "name", "due")),
}


@dataclass(frozen=True)
class Example:
    """Rows, what is computed of them, where epochs end, and how it is run."""

    seed: int
    branches: frozenset[str]
    epochs: int
    lane: str
    parallelism: int


EXAMPLES = st.builds(
    Example,
    seed=st.integers(0, 10**6),
    branches=st.frozensets(st.sampled_from([*BRANCHES]), min_size=2, max_size=3),
    epochs=st.integers(1, 5),
    lane=st.sampled_from(["auto", "spark"]),
    parallelism=st.sampled_from([1, 3]),
)
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@pytest.mark.parametrize(
    "example",
    [
        Example(1, frozenset({"outer"}), 2, "auto", 3),
        pytest.param(Example(1, frozenset({"deduplicated", "session", "outer"}), 3, "auto", 3), marks=pytest.mark.slow),
        pytest.param(Example(2, frozenset({"cut", "tumbling", "timers"}), 3, "spark", 1), marks=pytest.mark.slow),
    ],
    ids=lambda example: "-".join(sorted(example.branches)),
)
def test_results_are_the_same_wherever_epochs_end(example: Example, settings: Settings) -> None:
    check(example, settings)


@pytest.mark.slow
@hypothesis_settings(max_examples=30, deadline=None, print_blob=True, suppress_health_check=QUIET)
@given(example=EXAMPLES)
def test_results_of_random_rows_are_the_same_wherever_epochs_end(example: Example, settings: Settings) -> None:
    check(example, settings)


def check(example: Example, settings: Settings) -> None:
    """Run the branches over the rows, and compare each with a plain loop."""
    input_rows = rows(example.seed)
    cuts = set(random.Random(example.seed).sample(range(1, len(input_rows)), example.epochs - 1))
    items = [one for number, row in enumerate(input_rows) for one in ([EOF, row] if number in cuts else [row])]
    stream = ps.from_items([], SCHEMA).named("rows").event_time("ts", DELAY).named("timed")
    names = sorted(example.branches)
    outputs = [BRANCHES[name].build(stream).named(name).to(ps.collect()).named(f"to-{name}") for name in names]
    where = replace(at_parallelism(settings, example.parallelism), lane=example.lane)
    pipeline = ps.Pipeline("times", *outputs, rejected_to=ps.collect())
    out = run_to_end(pipeline, {"rows": items}, settings=where)
    good = usable(input_rows)
    assert out.counts["timed"].rejected == len(input_rows) - len(good)
    for name in names:
        branch = BRANCHES[name]
        found = [tuple(row[column] for column in branch.columns) for row in out[f"to-{name}"]]
        assert Counter(found) == Counter(branch.expected(good)), name
        assert not out.counts[name].late
