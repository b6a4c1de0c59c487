"""`explain` warns where the rows of a key may reach a keyed sink in any order."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

WARNING = "may come in any order"


def _read(name: str = "a") -> ps.Stream:
    return ps.read_topic(name, schema="k bigint, v bigint, ts timestamp", start="earliest")


def _same(batch: Any) -> Any:
    return batch


def _window(rows: ps.Stream) -> ps.Stream:
    return rows.event_time("ts", "1s").key_by("k").window(ps.tumbling("1m")).aggregate(v="max(v)")


def _explained(*streams: ps.Stream, key: str | None = "k") -> str:
    outputs = [rows.to(ps.topic(f"out{number}", key=key)) for number, rows in enumerate(streams)]
    return ps.Pipeline("order", *outputs).explain()


@pytest.mark.parametrize(
    "streams",
    [
        [_window(_read()).map_batches(_same)],
        [_window(_read()).map_batches(_same).filter("v > 0")],
        [_read().filter("v > 0").union(_read().filter("v < 0").map_batches(_same))],
        [_read().union(_read("b")).map_batches(_same)],
        [(shared := _read().map_batches(_same)), shared.filter("v > 0")],
    ],
    ids=["after a window", "then a filter", "in a union", "after a union", "two outputs"],
)
def test_a_keyed_sink_after_map_batches_is_warned_of_where_rows_lose_their_order(streams: list[ps.Stream]) -> None:
    assert WARNING in _explained(*streams)
    assert WARNING not in _explained(*streams, key=None)


@pytest.mark.parametrize(
    "stream",
    [_read().map_batches(_same), _window(_read().map_batches(_same)), _window(_read()), _read().union(_read("b"))],
    ids=["one output", "then a window", "a window", "a union"],
)
def test_no_warning_where_rows_come_in_order(stream: ps.Stream) -> None:
    assert WARNING not in _explained(stream)
