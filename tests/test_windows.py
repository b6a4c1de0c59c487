"""Windows as they are built: what is refused, how they are written down and explained."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import AggregateNotAllowed, BadValue, BadWindow, MissingEventTime

TRADES = ps.datagen("k string, v bigint, ts timestamp", rows=10).named("trades")
TIMED = TRADES.event_time("ts", "5s")


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (ps.tumbling("1m", offset="5s", clock="processing"), "tumbling(1m, offset=5s, clock=processing)"),
        (ps.sliding("1h", "5m"), "sliding(1h, 5m)"),
        (ps.session("30s", max_length="1h"), "session(gap=30s, max_length=1h)"),
        (ps.count_window(5), "count(5)"),
        (ps.count_window(5, 2), "count(5, 2)"),
        (ps.global_window(), "global()"),
    ],
)
@pytest.mark.parametrize("emit", ["final", "updates", "10s"])
def test_windows_are_written_as_json_and_explained(window: ps.Window, text: str, emit: str) -> None:
    if emit != "final" and window.kind in ("session", "count"):
        pytest.skip("final results only")
    counts = TIMED.key_by("k").window(window, emit=emit).aggregate(n="count(*)")
    top = TIMED.window(window, emit=emit).top(3, "v")
    pipeline = ps.Pipeline("p", counts.to(ps.console()), top.to(ps.console()).named("best"))
    again = ps.Pipeline.from_json(pipeline.to_json())
    assert again.to_json() == pipeline.to_json()
    assert again.explain() == pipeline.explain()
    assert text in pipeline.explain()


def test_a_result_starts_with_the_columns_of_its_window() -> None:
    keyed = TIMED.key_by("k")
    assert keyed.window(ps.count_window(3)).aggregate(n="count(*)").schema.names == ("k", "window_number", "n")
    assert TIMED.window(ps.session("5s")).top(1, "v").schema.names == (
        *("window_start", "window_end"),
        *("k", "v", "ts", "rank"),
    )


def test_a_window_of_rows_or_of_the_clock_needs_no_event_time() -> None:
    for window in (ps.count_window(3), ps.tumbling("1m", clock="processing")):
        assert not TRADES.window(window).aggregate(n="count(*)").node.event_time
    with pytest.raises(MissingEventTime):
        TRADES.window(ps.global_window()).aggregate(n="count(*)")


def test_what_a_window_cannot_do_is_refused_when_it_is_built() -> None:
    keyed = TIMED.key_by("k")
    with pytest.raises(AggregateNotAllowed, match=r"count\(5\)"):
        keyed.window(ps.count_window(5)).aggregate(middle="median(v)")
    for window in (ps.session("1m"), ps.count_window(5)):
        with pytest.raises(BadWindow, match="final results only"):
            keyed.window(window, emit="10s").aggregate(n="count(*)")
    with pytest.raises(BadValue, match="n=0"):
        keyed.window(ps.tumbling("1m")).top(0, "v")
    with pytest.raises(BadValue, match="rank"):
        TIMED.with_columns(rank="1").window(ps.tumbling("1m")).top(1, "v")
    with pytest.raises(BadValue, match="emit='often'"):
        keyed.window(ps.tumbling("1m"), emit="often")
    with pytest.raises(BadWindow, match="max_length"):
        ps.session("1m", max_length="1s")
    with pytest.raises(BadWindow, match="slide"):
        ps.count_window(2, 3)
    with pytest.raises(BadWindow, match="n=0"):
        ps.count_window(0)
    with pytest.raises(BadWindow, match="clock='mine'"):
        ps.tumbling("1m", clock="mine")  # type: ignore[arg-type]


def test_spans_that_leave_no_time_are_refused_when_built() -> None:
    with pytest.raises(BadValue, match="is too long"):
        ps.tumbling("99999999999d")
    long = TIMED.key_by("k").window(ps.tumbling("2000000d")).aggregate(n="count(*)")
    with pytest.raises(BadWindow, match="no event time is left"):
        ps.Pipeline("p", long.to(ps.collect()))
