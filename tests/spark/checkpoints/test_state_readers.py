"""Promise: a job's state is shown as a table with the names of its pipeline."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli.state import state
from penstock.errors import BadValue, CheckpointDamaged, CheckpointMissing
from penstock.settings import Settings
from penstock.spark.checkpoints.state.reader import read_state
from penstock.spark.checkpoints.state.spark_reader import SparkReader
from penstock.spark.checkpoints.state.tables import StateTable, find_state
from penstock.storage.folders import Folder, folder
from tests.conftest import at
from tests.spark.stateful_jobs import on


def read_with_spark(root: Folder, settings: Settings, node: str) -> StateTable:
    return SparkReader(find_state(root, node), settings).read()


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


class Seen(ps.Process):
    output = "k string"
    words = ps.state.list(str)

    def on_row(self, row: Any, ctx: ps.Context) -> Any:
        self.words.append(row["word"])
        ctx.set_timer(row["ts"] + timedelta(hours=1), "later")

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Any: ...


@pytest.fixture(scope="module")
def checkpoint(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a job with every kind of state, its windows open."""
    items = [{"k": "ab"[i % 2], "word": "x" * i, "v": i, "ts": at(i)} for i in range(1, 9)]
    rows = ps.from_items(items, "k string, word string, v int, ts timestamp").named("rows").event_time("ts", "5s")
    windows = rows.key_by("k").window(ps.tumbling("10s"))
    sums = windows.aggregate(total="sum(v)", mean="avg(v)", top="max_by(word, v)", price="sum(cast(v as decimal(5,2)))")
    longest = windows.aggregate(longest=Longest("word"), n="count(*)")
    once = rows.deduplicate("k", within="1h")
    values = windows.aggregate(
        words="count(DISTINCT word)",
        middle="median(v)",
        near="percentile_approx(v, 0.5)",
        n="count(*)",
        all="collect_list(v)",
    )
    sessions = rows.key_by("k").window(ps.session("30s")).aggregate(n="count(*)", mean="avg(v)")
    thirds = rows.key_by("k").window(ps.count_window(3)).aggregate(n="count(*)", total="sum(v)")
    pipeline = ps.Pipeline(
        "states",
        values.named("values").to(ps.callback(_ignored)).named("values-out"),
        sessions.named("sessions").to(ps.callback(_ignored)).named("sessions-out"),
        thirds.named("thirds").to(ps.callback(_ignored)).named("thirds-out"),
        windows.top(1, by="v").named("top").to(ps.callback(_ignored)).named("top-out"),
        rows.key_by("k").process(Seen()).named("seen").to(ps.callback(_ignored)).named("seen-out"),
        sums.named("sums").to(ps.collect()),
        longest.named("longest").to(ps.callback(_ignored)).named("words"),
        once.to(ps.console()),
        rows.key_by("k").aggregate(ever=Longest("word")).named("ever").to(ps.callback(_ignored)),
    )
    where: Path = tmp_path_factory.mktemp("job") / "checkpoint"
    pipeline.run(until="drained", checkpoint=where, settings=on(settings, "memory"))
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


def test_binary_buffers_of_spark_are_decoded_to_values(checkpoint: Path, settings: Settings) -> None:
    root = folder(checkpoint)
    (a,) = read_state(root, settings, node="values", key="a").rows
    assert a["words"] == ["xx", "xxxx", "xxxxxx", "xxxxxxxx"]
    assert (a["middle"], a["n"], sorted(a["all"])) == ({"2": 1, "4": 1, "6": 1, "8": 1}, 4, [2, 4, 6, 8])
    assert a["near"] == {"rows": 4, "values": [2.0, 4.0, 6.0, 8.0]}
    (session,) = read_state(root, settings, node="sessions", key="b").rows
    assert (session["window_start"], session["window_end"]) == (at(1), at(37))
    assert (session["n"], session["mean"]) == (4, 4.0)
    (third,) = read_state(root, settings, node="thirds", key="a").rows
    assert (third["open"], third["count(*) bigint"], third["sum(v) bigint"]) == (1, 1, 8)
    (top,) = read_state(root, settings, node="top", key="b").rows
    assert [row["v"] for row in top["rows"]] == [7]
    (seen,) = read_state(root, settings, node="seen", key="a").rows
    assert (seen["words"], seen["timers"]) == (
        ["xx", "xxxx", "xxxxxx", "xxxxxxxx"],
        {"later": f"{(at(8) + timedelta(hours=1)).isoformat()} (event)"},
    )
    assert read_state(root, settings, node="sums").offsets == {"rows": {"0": 8}}


@pytest.mark.parametrize("node", ["sums", "longest", "values", "sessions", "thirds", "seen", "deduplicate", "ever"])
def test_both_readers_return_the_same_table(node: str, checkpoint: Path, settings: Settings) -> None:
    root, started = folder(checkpoint), []
    direct = read_state(root, settings, node=node, report=started.append)
    by_spark = read_with_spark(root, settings, node)
    assert not started
    assert direct.epoch == by_spark.epoch
    assert (direct.columns, direct.rows) == (by_spark.columns, by_spark.rows)


def test_state_is_read_without_starting_spark(checkpoint: Path) -> None:
    code = (
        "import sys; from penstock.storage.folders import folder; from penstock.settings import Settings\n"
        "from penstock.spark.checkpoints.state.reader import read_state\n"
        f"read_state(folder({str(checkpoint)!r}), Settings(), node='sums'); assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone", "schema"])
def test_a_damaged_file_of_state_is_named(damage: str, checkpoint: Path, settings: Settings, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    version = find_state(folder(copy), "sums")
    state = copy / "queries" / version.query / "state" / str(version.number) / "0"
    file = state / "_metadata" / "schema" if damage == "schema" else max(state.glob("*.delta"))
    for sums in state.glob(".*.crc") if damage in ("flip", "cut") else ():
        sums.unlink()
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 0xFF
        data[25] ^= 0xFF
    file.unlink() if damage == "gone" else file.write_bytes(
        data[: {"cut": len(data) // 2, "empty": 0}.get(damage, len(data))]
    )
    if damage == "schema":
        file.write_bytes(b"v9")
    with pytest.raises((CheckpointDamaged, CheckpointMissing)) as raised:
        read_state(folder(copy), settings, node="sums", at=1)
    assert raised.value.hint
    assert damage == "gone" or str(file) in str(raised.value)


@pytest.mark.slow
def test_both_sides_of_joins_are_shown(settings: Settings, tmp_path: Path) -> None:
    orders = [{"k": "a", "n": 1, "ts": at(10)}, {"k": "b", "n": 2, "ts": at(11)}]
    ships = [{"id": "a", "port": "x", "at": at(12)}, {"id": "c", "port": None, "at": at(13)}]
    left = ps.from_items(orders, "k string, n bigint, ts timestamp").named("orders").event_time("ts", "60s")
    right = ps.from_items(ships, "id string, port string, at timestamp").named("ships").event_time("at", "60s")
    met = left.join(right, on={"k": "id"}, within=("-30s", "30s")).named("met").to(ps.collect())
    last = left.join_asof(right, on={"k": "id"}).named("last").to(ps.callback(_ignored))
    ps.Pipeline("joins", met, last).run(until="drained", checkpoint=tmp_path / "c", settings=on(settings, "memory"))
    for node, read in product(("met", "last"), (read_state, read_with_spark)):
        found = read(folder(tmp_path / "c"), settings, node=node)
        assert found.columns == ["side", "k", "time", "row"]
        sides = {(row["side"], row["k"]): row["row"] for row in found.rows}
        assert [*sides] == [("left", "a"), ("right", "a"), ("left", "b"), ("right", "c")]
        assert (sides["left", "b"]["n"], sides["right", "a"]["port"], sides["right", "c"]["port"]) == (2, "x", None)
        assert {datetime.fromisoformat(row["time"]) for row in found.rows} == {at(10), at(11), at(12), at(13)}
        (only,) = read_state(folder(tmp_path / "c"), settings, node=node, key="c").rows
        assert only["side"] == "right"


def test_state_of_rocksdb_is_read_by_spark_with_a_reason(settings: Settings, tmp_path: Path) -> None:
    items = ps.from_items([{"k": "a", "v": 1}, {"k": "a", "v": 2}], "k string, v int").named("rows")
    counts = items.key_by("k").aggregate(total="sum(v)", seen="count(DISTINCT v)").to(ps.callback(_ignored))
    where = tmp_path / "rocks"
    ps.Pipeline("rocks", counts).run(until="drained", checkpoint=where, settings=on(settings, "rocksdb"))
    said: list[str] = []
    found = read_state(folder(where), settings, report=said.append)
    assert said == ["starting Spark to read the state: its state is RocksDB's, which only Spark reads"]
    assert [(row["k"], row["total"], row["seen"]) for row in found.rows] == [("a", 3, [1, 2])]


def test_the_command_prints_a_table(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state(str(checkpoint), node="sums", key="a")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("sums, after epoch ")
    assert said[1].split() == ["k", "window_start", "window_end", "total", "mean", "top", "price"]
    assert said[2].split()[:2] == ["a", at(0).isoformat()]


def test_unknown_nodes_and_epochs_are_refused_with_the_choices(checkpoint: Path, settings: Settings) -> None:
    root = folder(checkpoint)
    with pytest.raises(BadValue, match=r"nodes: .*longest"):
        read_state(root, settings)
    with pytest.raises(CheckpointMissing, match="did you mean 'sums'"):
        read_state(root, settings, node="sum")
    with pytest.raises(CheckpointMissing, match="epoch 99 is not retained"):
        read_state(root, settings, node="sums", at=99)
