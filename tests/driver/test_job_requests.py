"""Rows of a job without Spark: of sources, sinks and nodes between, rejected and late ones, and their replay."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.driver.job_requests import respond

PIPELINE = """
import penstock as ps

def job(data: str) -> ps.Pipeline:
    trades = ps.read_files(f"{data}/in", schema="symbol string, price bigint, ts timestamp", format="json")
    trades = trades.named("trades")
    large = trades.filter("price > 2").named("large")
    doubled = large.with_columns(twice="price * 2").named("doubled")
    upper = doubled.map(lambda row: {**row, "symbol": row["symbol"].upper()}, schema=doubled.schema).named("upper")
    windows = large.event_time("ts", "1s").key_by("symbol")
    counted = windows.window(ps.tumbling("10s"), late_to=ps.files(f"{data}/late", format="json"))
    return ps.Pipeline(
        "prices",
        doubled.to(ps.files(f"{data}/out", format="json")),
        upper.to(ps.console()),
        counted.aggregate(n="count(*)").named("counts").to(ps.table("counts", connection=f"sqlite:///{data}/shop.db")),
        rejected_to=ps.files(f"{data}/bad", format="json"),
    )
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a job as a run has left them."""
    data = tmp_path_factory.mktemp("data")
    (data / "job.py").write_text(PIPELINE)
    rows = [{"symbol": f"s{n}", "price": n, "ts": f"2026-01-01T00:00:{n:02}Z"} for n in range(10)]
    write(data / "in" / "trades.json", *rows, "{")
    write(data / "out" / "part-0.json", {"symbol": "s3", "price": 3, "twice": 6})
    write(data / "late" / "part-0.json", {"symbol": "s1", "price": 1, "ts": "2026-01-01T00:00:01Z"})
    bad = {"node": "trades", "reason": "not JSON", "raw": "ew==", "source": "trades", "position": "a/3@7", "epoch": 2}
    write(data / "bad" / "part-0.json", bad)
    with closing(sqlite3.connect(data / "shop.db")) as shop:
        shop.execute("CREATE TABLE counts (symbol TEXT, n BIGINT)")
        shop.execute("INSERT INTO counts VALUES ('s3', 1)")
        shop.commit()
    return data


def write(path: Path, *rows: dict[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))


def ask(data: Path, what: str, **request: Any) -> dict[str, Any]:
    arguments = {"data": str(data)}
    assignment = {"job": "j1", "target": str(data / "job.py"), "checkpoint": str(data / "checkpoint")}
    return respond({"assignment": {**assignment, "entry": "job", "arguments": arguments}, "what": what, **request})


def test_a_source_shows_its_newest_rows_and_how_many_cannot_be_parsed(data: Path) -> None:
    found = ask(data, "sample", node="trades", limit=20)
    assert (found["ok"], found["source"], found["columns"]) == (True, "file", ["symbol", "price", "ts"])
    assert found["rows"][0] == {"symbol": "s0", "price": 0, "ts": "2026-01-01T00:00:00Z"}
    assert len(found["rows"]) == 10
    assert found["note"] == "rows of the newest of 1 files; 1 could not be parsed"


def test_a_node_without_state_shows_what_it_makes_of_its_source(data: Path) -> None:
    found = ask(data, "sample", node="doubled", limit=2)
    assert (found["source"], [row["twice"] for row in found["rows"]]) == ("preview", [6, 8])
    assert found["note"].startswith("computed now from 10 rows")


def test_sinks_show_what_they_have(data: Path) -> None:
    out = ask(data, "sample", node="out", limit=2)
    assert (out["source"], out["rows"]) == ("sink", [{"symbol": "s3", "price": 3, "ts": None, "twice": 6}])
    table = ask(data, "sample", node="sink counts", limit=2)
    assert (table["source"], table["rows"]) == ("sink", [{"symbol": "s3", "n": 1}])


def test_what_runs_in_spark_only_is_refused_with_the_reason(data: Path) -> None:
    for node, reason in (("upper", "runs in Spark only"), ("counts", "exist only while the job runs")):
        found = ask(data, "sample", node=node, limit=2)
        assert (found["ok"], found["error"]["type"]) == (False, "RequestRefused"), found
        assert reason in found["error"]["message"]
    assert ask(data, "sample", node="larg", limit=2)["error"]["type"] == "UnknownJob"


def test_rejected_rows_are_shown_with_their_bytes_and_late_ones_with_their_values(data: Path) -> None:
    (rejected,) = ask(data, "diverted", kind="rejected", limit=5)["items"]
    assert (rejected["node"], rejected["reason"], rejected["raw_base64"]) == ("trades", "not JSON", "ew==")
    assert (rejected["partition"], rejected["offset"], rejected["epoch"]) == (3, 7, 2)
    late = ask(data, "diverted", kind="late", limit=5)
    assert [(row["node"], row["row"]["symbol"]) for row in late["items"]] == [("counts", "s1")]


def test_rejected_rows_go_back_once(data: Path) -> None:
    first, again = (ask(data, "replay") for _ in range(2))
    assert (first["replayed"], first["before"], first["rejected"]) == (1, 0, 1)
    assert (again["replayed"], again["before"]) == (0, 1)
    assert len([*(data / "in").iterdir()]) == 2


def test_a_pipeline_without_these_sinks_is_refused(data: Path, tmp_path: Path) -> None:
    plain = 'import penstock as ps\n\njob = ps.Pipeline("p", ps.from_items([{"n": 1}], "n int").to(ps.console()))\n'
    (tmp_path / "job.py").write_text(plain)
    assignment = {"job": "j1", "target": str(tmp_path / "job.py"), "checkpoint": str(tmp_path / "c")}
    for request in ({"what": "diverted", "kind": "late"}, {"what": "diverted", "kind": "rejected"}, {"what": "replay"}):
        found = respond({"assignment": assignment, "limit": 5, **request})
        assert found["error"]["type"] == "RequestRefused", request
    assert respond({"assignment": assignment, "what": "sample", "node": "console", "limit": 5})["rows"] == [{"n": 1}]
