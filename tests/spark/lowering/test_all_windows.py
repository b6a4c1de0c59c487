"""Every window on Spark, with a crash in the middle, against plain Python over the rows that were not late.

In short the windows that Spark has itself crash in test_windows.py only.

Starting queries takes longer than running them, so two pipelines hold all windows: those that Spark has itself, and
those that buckets of keys hold.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.testing import EOF, AdvanceClock, Crash, Results, assert_rows, run_to_end
from tests.conftest import at

SCHEMA = "k string, v bigint, x double, ts timestamp"
Row = dict[str, Any]
Epochs = list[list[Row]]
LATE = {"k": "a", "v": 1, "x": 1.0, "ts": at(-100)}


@pytest.fixture(scope="module", params=["auto", pytest.param("spark", marks=pytest.mark.slow)])
def lane(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Run everything in both lanes: the results must be equal."""
    return replace(settings, lane=request.param)


def history(seed: int) -> Epochs:
    """Some epochs of rows that drift forward in time, out of order but never late."""
    chance = random.Random(seed)
    return [
        [
            {
                "k": chance.choice("abc"),
                "v": None if chance.random() < 0.1 else chance.randrange(6),
                "x": chance.choice([0.0, -0.0, 1.5, 2.25, 7.0, float("inf"), None]),
                "ts": at(number * 15 + chance.randrange(30_000) / 1000),
            }
            for _ in range(50)
        ]
        for number in range(3)
    ]


def stream() -> ps.Stream:
    return ps.from_items([], SCHEMA).named("rows").event_time("ts", "20s")


def run(outputs: dict[str, ps.Stream], items: list[Any], lane: Settings) -> Results:
    writes = [one.named(name).to(ps.collect()).named(f"to-{name}") for name, one in outputs.items()]
    aside = [
        one.named(name).side("late").to(ps.collect()).named("late") for name, one in outputs.items() if name == "cut"
    ]
    return run_to_end(ps.Pipeline("p", *writes, *aside), {"rows": items}, settings=lane)


def grouped(epochs: Epochs, size: int) -> dict[Any, list[Row]]:
    groups = defaultdict(list)
    for row in (row for rows in epochs for row in rows):
        start = (row["ts"] - at(0)).total_seconds() // size * size
        groups[row["k"], at(start)].append(row)
    return groups


# --- windows that Spark has itself ---------------------------------------------------------------

EXACT = {"values": "count(DISTINCT v)", "pairs": "count(DISTINCT v, x) FILTER (WHERE v > 1)", "n": "count(*)"}
ABOUT = {"about": "approx_count_distinct(v)", "near": "percentile_approx(v, 0.5)", "high": "percentile(v, 0.9)"}
OWN = history(1)


@pytest.fixture(scope="module")
def own(lane: Settings) -> Results:
    keyed, rows = stream().key_by("k"), stream()
    outputs = {
        "exact": keyed.window(ps.tumbling("10s")).aggregate(**EXACT, **ABOUT, middle="median(v)"),
        "top": keyed.window(ps.tumbling("10s")).top(3, "v"),
        "final": keyed.window(ps.global_window()).aggregate(n="count(*)", total="sum(v)"),
        "live": rows.window(ps.global_window(), emit="updates").aggregate(n="count(*)"),
        "ever": keyed.aggregate(values="count(DISTINCT v)", middle="median(v)"),
    }
    first, second, third = OWN
    between = Crash() if lane.lane == "spark" else EOF
    return run(outputs, [*first, between, *second, *third], lane)


@pytest.fixture(scope="module")
def own_sessions(lane: Settings) -> Results:
    rows = stream()
    outputs = {
        "session": rows.window(ps.session("1m")).aggregate(**EXACT, middle="median(v)"),
        "best": rows.window(ps.session("1m")).top(2, "x * 2"),
        "live": rows.window(ps.global_window(), emit="updates").aggregate(n="count(*)"),
    }
    first, second, third = OWN
    return run(outputs, [*first, EOF, *second, Crash(), *third], lane)


def test_distinct_counts_and_percentiles_are_exact(own: Results) -> None:
    groups = grouped(OWN, 10)
    assert {(r["k"], r["window_start"]) for r in own["to-exact"]} == set(groups)
    for result in own["to-exact"]:
        _check_exact(result, groups[result["k"], result["window_start"]])
        assert result["about"] == result["values"]


@pytest.mark.slow
def test_sessions_over_all_keys_are_exact_and_ranked_and_shown_after_each_epoch(own_sessions: Results) -> None:
    (whole,) = own_sessions["to-session"]
    _check_exact(whole, [row for rows in OWN for row in rows])
    best = sorted(own_sessions["to-best"], key=lambda row: row["rank"])
    assert [row["x"] for row in best] == [float("inf")] * 2
    assert [row["n"] for row in own_sessions["to-live"]] == [50, 100, 150]


def test_distinct_counts_and_percentiles_without_a_window_are_exact(own: Results) -> None:
    last = {row["k"]: row for row in own["to-ever"]}
    for k, result in last.items():
        values = [row["v"] for rows in OWN for row in rows if row["k"] == k and row["v"] is not None]
        assert (result["values"], result["middle"]) == (len(set(values)), statistics.median(values))


def _check_exact(result: Row, rows: list[Row]) -> None:
    values = sorted(row["v"] for row in rows if row["v"] is not None)
    pairs = {(r["v"], r["x"]) for r in rows if r["v"] is not None and r["v"] > 1 and r["x"] is not None}
    assert (result["values"], result["pairs"], result["n"]) == (len(set(values)), len(pairs), len(rows))
    assert result["middle"] == (statistics.median(values) if values else None)


def test_the_top_rows_of_each_window_come_whole_and_ranked(own: Results) -> None:
    expected = []
    for (_, start), rows in grouped(OWN, 10).items():
        window = {"window_start": start, "window_end": at((start - at(0)).total_seconds() + 10)}
        expected += [{**row, **window, "rank": rank} for rank, row in enumerate(_best(rows)[:3], 1)]
    assert_rows(own["to-top"], expected)
    assert list(own["to-top"][0]) == ["k", "window_start", "window_end", "v", "x", "ts", "rank"]


def _best(rows: list[Row]) -> list[Row]:
    def order(row: Row) -> Any:
        return [(value is not None, value) for value in (row["v"], *row.values())]

    return sorted(rows, key=order, reverse=True)


def test_a_global_window_ends_with_the_input_and_shows_updates_before(own: Results) -> None:
    found = {row["k"]: (row["n"], row["total"]) for row in own["to-final"]}
    mine = {k: [row for rows in OWN for row in rows if row["k"] == k] for k in "abc"}
    assert found == {k: (len(mine[k]), sum(row["v"] or 0 for row in mine[k])) for k in mine}
    assert [row["n"] for row in own["to-live"]] == [50, 150]
    assert {row["window_start"].year for row in own["to-final"]} == {1}
    assert own.counts["final"].late == 0


# --- windows that buckets of keys hold ------------------------------------------------------------


class InOrder(ps.Aggregator):
    """The values in the order in which they were folded."""

    state, result = "array<bigint>", "array<bigint>"

    def start(self) -> list[int]:
        return []

    def add(self, acc: list[int], value: int) -> list[int]:
        return [*acc, value]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [*a, *b]

    def finish(self, acc: list[int]) -> list[int]:
        return acc


HELD = history(2)
EVERY = [row for rows in HELD for row in rows]


ROWS, TIMED = ps.from_items([], SCHEMA).named("rows"), stream()
CUT = ps.session("3s", max_length="8s")
FOURS = ROWS.key_by("k").window(ps.count_window(4))


def play(outputs: dict[str, ps.Stream], lane: Settings) -> Results:
    first, second, third = HELD
    return run(outputs, [*first, EOF, *second, AdvanceClock("3h"), *third, Crash(), LATE], lane)


@pytest.fixture(scope="module")
def held(lane: Settings) -> Results:
    sliding = TIMED.key_by("k").window(ps.sliding("20s", "10s"), emit="1h")
    outputs = {
        "fours": FOURS.aggregate(n="count(*)", total="sum(v)", last="max(ts)", values=InOrder("v")),
        "cut": TIMED.key_by("k").window(CUT).aggregate(n="count(*)", least="min(v)"),
        "early": sliding.aggregate(n="count(*)", total="sum(v)"),
        "clock": ROWS.key_by("k").window(ps.tumbling("1h", clock="processing")).aggregate(n="count(*)"),
    }
    first, second, third = HELD
    return run(outputs, [*first, *second, Crash(), AdvanceClock("3h"), *third, LATE], lane)


@pytest.fixture(scope="module")
def more(lane: Settings) -> Results:
    whole = TIMED.window(CUT).aggregate(n="count(*)").named("whole")
    live = ROWS.window(ps.sliding("2h", "1h", clock="processing"), emit="updates")
    outputs = {
        "sums": FOURS.reduce(lambda a, b: {**a, "v": (a["v"] or 0) + (b["v"] or 0)}),
        "best": FOURS.top(2, "v"),
        "overlap": ROWS.window(ps.count_window(50, 20)).aggregate(n="count(*)", mean="avg(v)"),
        "whole": whole,
        "hours": whole.window(ps.tumbling("1h")).aggregate(n="sum(n)"),
        "often": TIMED.window(ps.global_window(), emit="1h").aggregate(n="count(*)"),
        "quiet": ROWS.window(ps.session("30m", clock="processing")).aggregate(n="count(*)"),
        "live": live.aggregate(n="count(*)"),
    }
    return play(outputs, lane)


def _fours() -> dict[Any, list[Row]]:
    mine = {k: [row for row in [*EVERY, LATE] if row["k"] == k] for k in "abc"}
    return {(k, i // 4): rows[i : i + 4] for k, rows in mine.items() for i in range(0, len(rows), 4)}


def test_count_windows_take_rows_in_order_and_the_end_gives_out_what_is_not_full(held: Results) -> None:
    parts = _fours()
    assert {(row["k"], row["window_number"]) for row in held["to-fours"]} == set(parts)
    for row in held["to-fours"]:
        part = parts[row["k"], row["window_number"]]
        values = [one["v"] for one in part if one["v"] is not None]
        assert (row["n"], row["last"]) == (len(part), max(one["ts"] for one in part))
        assert row["total"] == (sum(values) if values else None)
        assert row["values"] == [one["v"] for one in part]
    assert held.counts["fours"].used == len(EVERY) + 1


@pytest.mark.slow
def test_reduce_and_top_work_in_count_windows(more: Results) -> None:
    parts = _fours()
    for row in more["to-sums"]:
        part = parts[row["k"], row["window_number"]]
        assert row["v"] == (sum(one["v"] or 0 for one in part) if len(part) > 1 else part[0]["v"])
    for key, part in parts.items():
        ranks = [row for row in more["to-best"] if (row["k"], row["window_number"]) == key]
        ranks.sort(key=lambda row: row["rank"])
        assert [{name: row[name] for name in part[0]} for row in ranks] == _best(part)[:2]


@pytest.mark.slow
def test_count_windows_over_all_keys_overlap(more: Results) -> None:
    every = [*EVERY, LATE]
    parts = [every[i : i + 50] for i in range(0, len(every), 20)]
    found = {row["window_number"]: row for row in more["to-overlap"]}
    assert [found[number]["n"] for number in sorted(found)] == [len(part) for part in parts]
    for number, part in enumerate(parts):
        assert found[number]["mean"] == pytest.approx(statistics.mean(r["v"] for r in part if r["v"] is not None))


def sessions(rows: list[Row], gap: float, longest: float) -> list[tuple[Any, Any, int]]:
    """The words of the docs, in Python."""
    found: list[list[Any]] = []
    for time in sorted((row["ts"] - at(0)).total_seconds() for row in rows):
        if found and time - found[-1][1] < gap and time - found[-1][0] < longest:
            found[-1][1:] = [time, found[-1][2] + 1]
        else:
            found.append([time, time, 1])
    return [(at(start), at(min(last + gap, start + longest)), n) for start, last, n in found]


def test_a_session_is_cut_at_its_longest_length_whatever_the_order_of_rows(held: Results) -> None:
    found = [(row["k"], row["window_start"], row["window_end"], row["n"]) for row in held["to-cut"]]
    assert sorted(found) == [(k, *one) for k in "abc" for one in sessions([r for r in EVERY if r["k"] == k], 3, 8)]
    assert_rows(held["late"], [LATE])
    assert (held.counts["cut"].late, held.counts["cut"].used) == (1, len(EVERY))


def test_early_results_come_at_most_every_span_and_the_final_one_always(held: Results) -> None:
    last: dict[Any, Any] = {}
    shown: dict[Any, int] = defaultdict(int)
    for row in held["to-early"]:
        key = (row["k"], row["window_start"])
        last[key], shown[key] = (row["n"], row["total"]), shown[key] + 1
    groups = defaultdict(list)
    for (k, start), rows in grouped(HELD, 10).items():
        for begin in (start, at((start - at(0)).total_seconds() - 10)):
            groups[k, begin] += rows
    sums = {key: [r["v"] for r in rows if r["v"] is not None] for key, rows in groups.items()}
    assert last == {key: (len(groups[key]), sum(values) if values else None) for key, values in sums.items()}
    assert max(shown.values()) <= 3


@pytest.mark.slow
def test_a_global_window_is_shown_at_once_then_after_a_span_without_rows_and_at_the_end(more: Results) -> None:
    # The late row is in time for all of time.
    assert [row["n"] for row in more["to-often"]] == [50, 100, len(EVERY) + 1]


def test_windows_of_the_clock_close_as_time_passes_without_rows(held: Results) -> None:
    found = defaultdict(int)
    for row in held["to-clock"]:
        found[row["window_start"]] += row["n"]
    assert [found[start] for start in sorted(found)] == [100, len(EVERY) - 99]
    assert all(start.minute == start.second == 0 for start in found)
    assert held.counts["clock"].used == len(EVERY) + 1


@pytest.mark.slow
def test_sessions_and_overlapping_windows_of_the_clock_close_too(more: Results) -> None:
    assert [row["n"] for row in more["to-quiet"]] == [100, len(EVERY) - 99]
    assert {row["n"] for row in more["to-live"]} >= {50, 100}


@pytest.mark.slow
def test_sessions_over_all_keys_are_cut_and_windows_follow_them(more: Results) -> None:
    assert sorted((r["window_start"], r["window_end"], r["n"]) for r in more["to-whole"]) == sessions(EVERY, 3, 8)
    assert [row["n"] for row in more["to-hours"]] == [len(EVERY)]
