"""Branches of one pipeline: each gets all of its rows, whatever the others do with theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadFunction
from penstock.settings import Settings
from penstock.testing import EOF, assert_rows, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint, ts timestamp"
Build = Callable[[ps.Stream], list[ps.Output]]


@pytest.fixture(params=["auto", "spark"])
def lane(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    return replace(settings, lane=request.param)


def row(k: str, v: int, seconds: float) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": at(seconds)}


def counted(rows: ps.Stream, size: str) -> ps.Stream:
    return rows.key_by("k").window(ps.tumbling(size)).aggregate(n="count(*)").named(f"in-{size}")


# The last row of the first epoch closes windows; in the second one row is late for both windows, one for none.
ROWS = [row("a", 1, 1), row("a", 2, 11), row("b", 0, 12), row("a", 3, 100), EOF, row("a", 4, 2), row("a", 5, 101)]


def run(build: Build, settings: Settings, rows: list[Any] = ROWS) -> Any:
    timed = ps.from_items([], SCHEMA).named("rows").event_time("ts", "5s")
    return run_to_end(ps.Pipeline("p", *build(timed)), {"rows": rows}, settings=settings)


def window(k: str, start: float, end: float, n: int) -> dict[str, Any]:
    return {"k": k, "window_start": at(start), "window_end": at(end), "n": n}


TENS = [window("a", 0, 10, 1), window("a", 10, 20, 1), window("b", 10, 20, 1), window("a", 100, 110, 2)]
TWENTIES = [window("a", 0, 20, 2), window("b", 0, 20, 1), window("a", 100, 120, 2)]


@pytest.mark.slow
def test_two_windows_of_one_event_time_both_give_results_and_part_late_rows(lane: Settings) -> None:
    def build(timed: ps.Stream) -> list[ps.Output]:
        tens, twenties = counted(timed, "10s"), counted(timed, "20s")
        late = [stream.side("late").to(ps.collect()).named(f"late-{stream.name}") for stream in (tens, twenties)]
        return [tens.to(ps.collect()).named("tens"), twenties.to(ps.collect()).named("twenties"), *late]

    out = run(build, lane)
    assert_rows(out["tens"], TENS)
    assert_rows(out["twenties"], TWENTIES)
    assert out["late-in-10s"] == out["late-in-20s"] == [row("a", 4, 2)]
    assert all(out.counts[name].late == 1 for name in ("in-10s", "in-20s"))
    assert out.counts["event_time"].rows_in == 6


@pytest.mark.slow
def test_windows_of_equal_filters_and_a_function_share_their_rows(lane: Settings) -> None:
    def build(timed: ps.Stream) -> list[ps.Output]:
        one, other = timed.filter("v > 0"), timed.filter("v > 0")
        return [
            other.map(lambda row: row).to(ps.collect()).named("all"),
            counted(one, "10s").to(ps.collect()).named("tens"),
        ]

    out = run(build, lane)
    assert len(out["all"]) == 5
    assert_rows(out["tens"], [one for one in TENS if one["k"] == "a"])


def test_one_window_goes_to_two_sinks_and_to_a_window_of_its_own(lane: Settings) -> None:
    def build(timed: ps.Stream) -> list[ps.Output]:
        tens = counted(timed, "10s")
        sums = tens.key_by("k").window(ps.tumbling("20s")).aggregate(n="sum(n)").named("sums")
        return [
            tens.to(ps.collect()).named("tens"),
            tens.filter("n > 1").to(ps.collect()).named("many"),
            sums.to(ps.collect()).named("sums-out"),
        ]

    # The late row is left out, and all others are one epoch.
    out = run(build, lane, [*ROWS[:4], ROWS[-1]])
    assert_rows(out["tens"], TENS)
    assert_rows(out["many"], TENS[-1:])
    assert_rows(out["sums-out"], TWENTIES)
    assert out.counts["in-10s"].used == 5


def test_a_function_that_would_run_for_each_of_several_windows_is_refused(settings: Settings) -> None:
    def build(timed: ps.Stream) -> list[ps.Output]:
        noted = timed.map(lambda row: row).named("noted")
        return [counted(noted, size).to(ps.collect()).named(size) for size in ("10s", "20s")]

    with pytest.raises(BadFunction, match=r"noted.*several operators with state") as refused:
        run(build, replace(settings, lane="spark"))
    assert "event time after it" in str(refused.value)
