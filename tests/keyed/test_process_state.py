"""State of process functions without Spark: what each kind remembers, and when nothing is left of a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import penstock as ps
from penstock.testing import ProcessTester


class Everything(ps.Process):
    """One state of each kind, and what the context says."""

    output = "k bigint, text string"
    last = ps.state.value("struct<a:bigint,b:array<string>>")
    names = ps.state.list(str)
    counts = ps.state.map(str, int)
    most = ps.state.reducing(int, max)

    class Mean(ps.Aggregator):
        state, result = "n bigint, s double", "double"

        def start(self) -> Any:
            return {"n": 0, "s": 0.0}

        def add(self, acc: Any, *values: Any) -> Any:
            return {"n": acc["n"] + 1, "s": acc["s"] + values[0]}

        def finish(self, acc: Any) -> Any:
            return acc["s"] / acc["n"] if acc["n"] else None

    mean = ps.state.aggregating(Mean())

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        before = (self.last.get(), len(self.names), dict(self.counts), self.most.get(), self.mean.get())
        self.last.set({"a": row["n"], "b": [row["name"]]})
        self.names.append(row["name"])
        self.counts[row["name"]] = self.counts.get(row["name"], 0) + 1
        self.most.add(row["n"])
        self.mean.add(row["n"])
        yield {**ctx.key, "text": repr(before)}


def test_every_kind_of_state_remembers() -> None:
    t = ProcessTester(Everything, key="k")
    t.send({"k": 1, "name": "x", "n": 3})
    t.send({"k": 1, "name": "y", "n": 2}, {"k": 1, "name": "x", "n": 5})
    assert [row["text"] for row in t.take()] == [
        "(None, 0, {}, None, None)",
        "({'a': 3, 'b': ['x']}, 1, {'x': 1}, 3, 3.0)",
        "({'a': 2, 'b': ['y']}, 2, {'x': 1, 'y': 1}, 3, 2.5)",
    ]
    assert t.state(1)["counts"] == {"x": 2, "y": 1}


@dataclass
class Seen:
    n: int
    words: list[str]


class Typed(ps.Process):
    output = Seen
    seen = ps.state.value(Seen)

    def on_row(self, row: Seen, ctx: ps.Context) -> Iterator[Any]:
        before = self.seen.get(Seen(0, []))
        self.seen.set(Seen(before.n + row.n, before.words + row.words))
        yield self.seen.get()


class Opened(ps.Process):
    output = "k string"
    open = ps.state.map(int, int)
    seen = ps.state.list(int)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> None:
        self.seen.extend([])
        if row["v"] > 0:
            self.open[row["v"]] = 1
        else:
            self.open.pop(-row["v"])


def test_of_a_key_whose_maps_and_lists_are_empty_nothing_is_kept() -> None:
    t = ProcessTester(Opened(), key="k")
    t.send({"k": "a", "v": 1}, {"k": "a", "v": 2}, {"k": "a", "v": -1}, {"k": "b", "v": 7})
    assert (t.state("a"), t.state("b")) == ({"open": {2: 1}}, {"open": {7: 1}})
    t.send({"k": "a", "v": -2})
    assert t.state("a") == {}


def test_rows_and_state_may_be_dataclasses() -> None:
    t = ProcessTester(Typed(), key="n")
    t.send(Seen(1, ["a"]))
    t.send(Seen(1, ["b"]))
    assert t.take() == [{"n": 1, "words": ["a"]}, {"n": 2, "words": ["a", "b"]}]
    assert t.state(1) == {"seen": Seen(2, ["a", "b"])}
