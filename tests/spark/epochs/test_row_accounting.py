"""Promise: at every node rows in = used + filtered + late + rejected + duplicate + dropped, each counted exactly.

Random rows go out of order, late, twice, broken and without a time through pipelines of random windows, in both lanes
and through crashes. What each node has to count is computed by the words of the design, epoch by epoch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

import penstock as ps
from penstock.report import Counts
from penstock.settings import Settings
from penstock.testing import EOF, Crash, Results, run_to_end
from penstock.windows import Window
from tests.conftest import at

SCHEMA = "id bigint not null, k string, v bigint, ts timestamp"
Row = dict[str, Any]
SECOND = 1_000_000


@dataclass(frozen=True)
class Plan:
    """One random pipeline: a delay, a window with its lateness, and whether Python stands in the way."""

    delay: int
    window: Window
    lateness: int
    python: bool

    @classmethod
    def random(cls, seed: int) -> Plan:
        chance = random.Random(seed)
        windows = (ps.tumbling("10s"), ps.sliding("20s", "5s"), ps.session("7s"), ps.tumbling("15s", offset="4s"))
        return cls(chance.randrange(0, 12), windows[seed % 4], chance.choice((0, 0, 8)), chance.random() < 0.5)


def history(seed: int, count: int = 4) -> list[list[Row | bytes]]:
    """Epochs of rows that drift forward; some are far behind, twice, broken, or without a time."""
    chance = random.Random(seed)
    epochs: list[list[Row | bytes]] = []
    for number in range(count):
        rows: list[Row | bytes] = []
        for place in range(50):
            seconds = number * 25 + chance.randrange(0, 40_000) / 1000 - (70 if chance.random() < 0.15 else 0)
            time = None if chance.random() < 0.05 else at(max(seconds, 0))
            row = {"id": number * 100 + place, "k": chance.choice("abc"), "v": chance.randrange(-2, 14), "ts": time}
            rows += [b"{broken" if chance.random() < 0.05 else row] * (2 if chance.random() < 0.1 else 1)
        epochs.append(rows)
    return epochs


def refuse_thirteen(row: Row) -> Row:
    if row["v"] == 13:
        message = "unlucky"
        raise ValueError(message)
    return row


def base(plan: Plan) -> tuple[ps.Stream, ps.Stream, ps.Stream]:
    """The part that both pipelines share: rows, kept rows with their time, and the window's counts."""
    rows = ps.read_topic("rows", schema=SCHEMA)
    checked = rows.map(refuse_thirteen) if plan.python else rows.filter("v != 13").named("lucky")
    kept = checked.event_time("ts", f"{plan.delay}s").named("timed").filter("v >= 0").named("kept")
    windows = kept.key_by("k").window(plan.window, allowed_lateness=f"{plan.lateness}s")
    return rows, kept, windows.aggregate(n="count(*)", total="sum(v)").named("counted")


def alone(plan: Plan) -> ps.Pipeline:
    _, _, counted = base(plan)
    return ps.Pipeline("p", counted.to(ps.collect()).named("out"), rejected_to=bad())


def among_others(plan: Plan) -> ps.Pipeline:
    """The same with side outputs, a branch of the same time, and branches with a longer delay and lateness."""
    rows, kept, counted = base(plan)
    unique = kept.deduplicate("id", within="1h", late_to=named("late-unique")).named("unique")
    slow = rows.filter("v >= 0").named("slow-kept").event_time("ts", "40s").key_by("k").window(ps.tumbling("10s"))
    patient = kept.window(ps.tumbling("10s"), allowed_lateness="30s", late_to=named("late-patient"))
    outputs = [
        counted.to(ps.collect()).named("out"),
        counted.side("late").filter("v > 5").named("big-late").to(ps.collect()).named("late"),
        unique.to(ps.collect()).named("to-unique"),
        slow.aggregate(n="count(*)").named("slow").to(ps.collect()).named("to-slow"),
        patient.aggregate(n="count(*)").named("patient").to(ps.collect()).named("to-patient"),
    ]
    return ps.Pipeline("p", *outputs, rejected_to=bad())


def beside_one(plan: Plan) -> ps.Pipeline:
    """In short: the same with a side output, a filter on it, and one branch of the same time."""
    _, kept, counted = base(plan)
    unique = kept.deduplicate("id", within="1h", late_to=named("late-unique")).named("unique")
    outputs = [
        counted.to(ps.collect()).named("out"),
        counted.side("late").filter("v > 5").named("big-late").to(ps.collect()).named("late"),
        unique.to(ps.collect()).named("to-unique"),
    ]
    return ps.Pipeline("p", *outputs, rejected_to=bad())


def named(name: str) -> ps.Sink:
    sink = ps.collect()
    sink.name = name
    return sink


def bad() -> ps.Sink:
    return named("bad")


# --- what has to come out, by the words of the design ---------------------------------------------


def micros(row: Row) -> int:
    return round((row["ts"] - at(0)).total_seconds() * SECOND)


def last_end(window: Window, time: int) -> int:
    """The end of the last window that a time is in."""
    if window.kind == "session":
        return time + window.size_us
    begin = (time - window.offset_us) // window.slide_us * window.slide_us + window.offset_us
    return begin + window.size_us


def timed(epochs: list[list[Row]], delay: int) -> Iterator[tuple[Row, int | None]]:
    """Each row that has a time, with the watermark of the epoch before its own."""
    newest: int | None = None
    for rows in epochs:
        watermark = None if newest is None else newest - delay * SECOND
        for row in (one for one in rows if one["ts"] is not None):
            newest = micros(row) if newest is None else max(newest, micros(row))
            yield row, watermark


def split(rows: Iterator[tuple[Row, int | None]], is_late: Callable[[Row, int], bool]) -> tuple[list[Row], list[Row]]:
    used: list[Row] = []
    late: list[Row] = []
    for row, watermark in rows:
        (late if watermark is not None and is_late(row, watermark) else used).append(row)
    return used, late


def misses(window: Window, lateness: int) -> Callable[[Row, int], bool]:
    return lambda row, watermark: last_end(window, micros(row)) + lateness * SECOND <= watermark


def not_negative(pairs: Iterator[tuple[Row, int | None]]) -> Iterator[tuple[Row, int | None]]:
    return ((row, watermark) for row, watermark in pairs if row["v"] >= 0)


def expected(plan: Plan, epochs: list[list[Row | bytes]]) -> dict[str, Counts]:
    """What each node has to count."""
    everything = [row for rows in epochs for row in rows]
    read = [[row for row in rows if isinstance(row, dict)] for rows in epochs]
    parsed = [row for rows in read for row in rows]
    lucky = [[row for row in rows if row["v"] != 13] for rows in read]
    passed = [row for rows in lucky for row in rows]
    unlucky = len(parsed) - len(passed)
    lacking = sum(row["ts"] is None for row in passed)
    kept = list(not_negative(timed(lucky, plan.delay)))
    used, late = split(iter(kept), misses(plan.window, plan.lateness))
    fresh, past = split(iter(kept), lambda row, watermark: micros(row) < watermark)
    slow, slow_late = split(not_negative(timed(read, 40)), misses(ps.tumbling("10s"), 0))
    patient, patient_late = split(iter(kept), misses(ps.tumbling("10s"), 30))
    ids = len({row["id"] for row in fresh})
    timely = len(passed) - lacking
    first = {"rejected": unlucky} if plan.python else {"filtered": unlucky}
    return {
        "rows": Counts(len(everything), len(parsed), rejected=len(everything) - len(parsed)),
        "map" if plan.python else "lucky": Counts(len(parsed), len(passed), **first),
        "timed": Counts(len(passed), timely, rejected=lacking),
        "kept": Counts(timely, len(kept), filtered=timely - len(kept)),
        "counted": Counts(len(kept), len(used), late=len(late)),
        "unique": Counts(len(kept), ids, late=len(past), duplicate=len(fresh) - ids),
        "slow": Counts(len(slow) + len(slow_late), len(slow), late=len(slow_late)),
        "patient": Counts(len(kept), len(patient), late=len(patient_late)),
    }


def open_windows(plan: Plan, epochs: list[list[Row | bytes]]) -> Iterator[int]:
    """Yield for each row in how many windows it is that had not closed when it came; none, if it is late."""
    read = [[row for row in rows if isinstance(row, dict) and row["v"] != 13] for rows in epochs]
    windows = plan.window.size_us // plan.window.slide_us
    for row, watermark in not_negative(timed(read, plan.delay)):
        last = last_end(plan.window, micros(row)) + plan.lateness * SECOND
        ends = (last - number * plan.window.slide_us for number in range(windows))
        yield sum(watermark is None or end > watermark for end in ends)


def check(plan: Plan, epochs: list[list[Row | bytes]], out: Results) -> None:
    for name, counts in out.counts.items():
        parts = Counter(counts.as_dict())
        assert parts.pop("rows_in") == parts.total(), name
    wanted = expected(plan, epochs)
    assert {name: counts for name, counts in out.counts.items() if name in wanted} == {
        name: counts for name, counts in wanted.items() if name in out.counts
    }
    # Every row that was used is in exactly one result for each of its windows that was open.
    assert sum(one["n"] for one in out["out"]) == sum(open_windows(plan, epochs))
    rejected = sum(counts.rejected for counts in out.counts.values())
    assert len(out["bad"]) == rejected


def items(epochs: list[list[Row | bytes]], *, crashes: bool) -> list[Any]:
    ends = [Crash() if crashes and number == 1 else EOF for number in range(len(epochs))]
    return [item for rows, end in zip(epochs, ends, strict=True) for item in (*rows, end)]


def run(
    plan: Plan, seed: int, build: Callable[[Plan], ps.Pipeline], settings: Settings, *, crashes: bool, count: int = 4
) -> Results:
    epochs = history(seed, count)
    return run_to_end(build(plan), {"rows": items(epochs, crashes=crashes)}, settings=settings)


def test_the_counts_of_every_node_add_up_beside_a_branch_and_through_a_crash(settings: Settings) -> None:
    plan = Plan.random(1)
    out = run(plan, 1, beside_one, settings, crashes=True, count=2)
    check(plan, history(1, 2), out)
    assert out.counts["counted"].late > 0
    assert out.counts["unique"].duplicate > 0
    assert len(out["late-unique"]) == out.counts["unique"].late


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["auto", "spark"])
def test_the_counts_of_every_node_add_up_through_branches_and_crashes(lane: str, settings: Settings) -> None:
    seed = {"auto": 1, "spark": 2}[lane]
    plan = Plan.random(seed)
    out = run(plan, seed, among_others, replace(settings, lane=lane), crashes=True)
    check(plan, history(seed), out)
    assert out.counts["counted"].late > 0
    assert out.counts["unique"].duplicate > 0
    assert len(out["late-unique"]) == out.counts["unique"].late
    assert len(out["late-patient"]) == out.counts["patient"].late


@pytest.mark.slow
def test_a_branch_or_a_side_output_more_or_another_lane_changes_no_count(settings: Settings) -> None:
    plan = Plan.random(1)
    check(plan, history(1), run(plan, 1, alone, replace(settings, lane="spark"), crashes=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 15))
@pytest.mark.parametrize("lane", ["auto", "spark"])
@pytest.mark.parametrize("build", [alone, among_others])
def test_counts_add_up_for_more_random_pipelines(
    seed: int, lane: str, build: Callable[[Plan], ps.Pipeline], settings: Settings
) -> None:
    plan = Plan.random(seed)
    check(plan, history(seed), run(plan, seed, build, replace(settings, lane=lane), crashes=seed % 2 == 0))
