"""Promise: a job's state is shown as a table in the words of its author."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli.state import state
from penstock.errors import CheckpointMissing
from penstock.folders import folder
from penstock.settings import Settings
from penstock.spark.checkpoints.state_reader import read_state
from tests.conftest import at
from tests.spark.stateful_jobs import on


class Longest(ps.Aggregator):
    state, result = "word string, n bigint", "string"

    def start(self) -> Any:
        return {"word": "", "n": 0}

    def add(self, acc: Any, word: str) -> Any:
        return {"word": max(acc["word"], word, key=len), "n": acc["n"] + 1}

    def merge(self, a: Any, b: Any) -> Any:
        return {"word": max(a["word"], b["word"], key=len), "n": a["n"] + b["n"]}

    def finish(self, acc: Any) -> Any:
        return acc["word"]


@pytest.fixture(scope="module")
def checkpoint(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a job with every kind of state, its windows open."""
    items = [{"k": "ab"[i % 2], "word": "x" * i, "v": i, "ts": at(i)} for i in range(1, 9)]
    rows = ps.from_items(items, "k string, word string, v int, ts timestamp").named("rows").event_time("ts", "5s")
    windows = rows.key_by("k").window(ps.tumbling("10s"))
    sums = windows.aggregate(total="sum(v)", mean="avg(v)", top="max_by(word, v)", price="sum(cast(v as decimal(5,2)))")
    longest = windows.aggregate(longest=Longest("word"), n="count(*)")
    once = rows.deduplicate("k", within="1h")
    pipeline = ps.Pipeline(
        "states",
        sums.named("sums").to(ps.collect()),
        longest.named("longest").to(ps.callback(_ignored)).named("words"),
        once.to(ps.console()),
        rows.key_by("k").aggregate(ever=Longest("word")).named("ever").to(ps.callback(_ignored)),
    )
    where: Path = tmp_path_factory.mktemp("job") / "checkpoint"
    pipeline.run(until="drained", checkpoint=where, settings=on(settings, "rocksdb"))
    return where


def _ignored(epoch: Any, table: Any) -> None:
    pass


def test_state_is_shown_by_keys_windows_and_results(checkpoint: Path, settings: Settings) -> None:
    root = folder(checkpoint)
    a, b = read_state(root, settings, node="sums").rows
    assert (a["k"], a["window_start"].timestamp(), a["total"], a["mean"]) == ("a", at(0).timestamp(), 20, 5.0)
    assert (b["top"], b["price"]) == ("x" * 7, 16)
    (found,) = read_state(root, settings, node="longest", key="b").rows
    assert sum(acc["n"] for acc in found["longest"]) == found["n"] == 4
    assert "x" * 7 in [acc["word"] for acc in found["longest"]]
    (ever,) = read_state(root, settings, node="ever", key="a").rows
    assert ever["accumulators"] == {"ever": {"word": "x" * 8, "n": 4}}
    kept = read_state(root, settings, node="deduplicate").rows
    assert [(row["k"], datetime.fromisoformat(row["kept_at"])) for row in kept] == [("a", at(2)), ("b", at(1))]
    assert read_state(root, settings, node="sums", limit=1).more


def test_both_sides_of_joins_are_shown(settings: Settings, tmp_path: Path) -> None:
    orders = [{"k": "a", "n": 1, "ts": at(10)}, {"k": "b", "n": 2, "ts": at(11)}]
    ships = [{"id": "a", "port": "x", "at": at(12)}, {"id": "c", "port": None, "at": at(13)}]
    left = ps.from_items(orders, "k string, n bigint, ts timestamp").named("orders").event_time("ts", "60s")
    right = ps.from_items(ships, "id string, port string, at timestamp").named("ships").event_time("at", "60s")
    met = left.join(right, on={"k": "id"}, within=("-30s", "30s")).named("met").to(ps.collect())
    last = left.join_asof(right, on={"k": "id"}).named("last").to(ps.callback(_ignored))
    ps.Pipeline("joins", met, last).run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    for node in ("met", "last"):
        found = read_state(folder(tmp_path / "c"), settings, node=node)
        assert found.columns == ["side", "k", "time", "row"]
        sides = {(row["side"], row["k"]): row["row"] for row in found.rows}
        assert [*sides] == [("left", "a"), ("right", "a"), ("left", "b"), ("right", "c")]
        assert (sides["left", "b"]["n"], sides["right", "a"]["port"], sides["right", "c"]["port"]) == (2, "x", None)
        assert {datetime.fromisoformat(row["time"]) for row in found.rows} == {at(10), at(11), at(12), at(13)}
        (only,) = read_state(folder(tmp_path / "c"), settings, node=node, key="c").rows
        assert only["side"] == "right"


def test_the_command_prints_a_table(
    checkpoint: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The same settings, and so the same session.
    monkeypatch.setenv("PENSTOCK_PARALLELISM", str(settings.parallelism))
    monkeypatch.setenv("PENSTOCK_SPARK", ",".join(f"{key}={value}" for key, value in settings.spark.items()))
    state(str(checkpoint), node="sums", key="a")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("sums, after epoch ")
    assert said[1].split() == ["k", "window_start", "window_end", "total", "mean", "top", "price"]
    assert said[2].split()[:2] == ["a", at(0).isoformat()]


def test_what_is_not_there_is_refused_with_the_choices(checkpoint: Path, settings: Settings) -> None:
    root = folder(checkpoint)
    with pytest.raises(CheckpointMissing, match=r"nodes: .*longest"):
        read_state(root, settings)
    with pytest.raises(CheckpointMissing, match="did you mean 'sums'"):
        read_state(root, settings, node="sum")
    with pytest.raises(CheckpointMissing, match="epoch 99 is not kept"):
        read_state(root, settings, node="sums", at=99)
