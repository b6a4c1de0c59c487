"""Which columns of results are the same when an epoch is computed again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock as ps
from penstock.plan.physical.determinism import replay_key, varies_in_replay

KEYS = ("k", "window_start", "window_end")


def rows(name: str = "rows") -> ps.Stream:
    return ps.from_items([], "k string, v double, ts timestamp").named(name).event_time("ts", "1s")


def sums(name: str = "sums") -> ps.Stream:
    return rows(f"of-{name}").key_by("k").window(ps.tumbling("10s")).aggregate(total="sum(v)").named(name)


SHAPES: dict[str, tuple[Callable[[], ps.Stream], tuple[str, ...], bool]] = {
    "source": (rows, (), False),
    "deduplication": (lambda: rows().deduplicate("k", "1m").map(lambda row: row), (), False),
    "aggregate": (sums, KEYS, True),
    "renamed key": (lambda: sums().rename(key="k"), ("key", *KEYS[1:]), True),
    "union": (lambda: sums("a").union(sums("b")), KEYS, True),
    "union with other rows": (
        lambda: sums("a").select("k", total="total").union(rows().select("k", total="v")),
        (),
        True,
    ),
    "text of a sum": (lambda: sums().select(text="cast(total as string)"), (), True),
    "function": (lambda: sums().map(lambda row: row), (), True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_of_groups_are_known_until_they_are_lost(shape: str) -> None:
    build, key, varies = SHAPES[shape]
    node = build().node
    assert (replay_key(node), varies_in_replay(node)) == (key, varies)
