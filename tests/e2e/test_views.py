"""The examples of views, in the tests' own Spark: from topics to PostgreSQL and SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.live_auction import AUCTIONS, BIDS
from penstock.cli.view import follow
from penstock.entry_points import load_entry
from penstock.settings import Settings
from penstock.spark.checkpoints.state.reader import read_state
from penstock.spark.checkpoints.state.tables import StateTable
from penstock.storage.folders import folder
from tests.connectors.kafka_topics import Topic
from tests.databases import PostgresServer
from tests.spark.view_oracle import Bag, Feed, bag, recomputed

EXAMPLES = Path(__file__).parents[2] / "examples"
VALID = 'auctions JOIN bids ON id = auction AND "at" BETWEEN opens AND expires'
AVERAGE = f"""SELECT category, avg(final) AS price, count(*) AS auctions FROM (
    SELECT id, category, max(price) AS final FROM {VALID} GROUP BY id, category) GROUP BY category"""
QUERIES = {
    "average_price": AVERAGE,
    "winning_bid": f"""SELECT * EXCLUDE n FROM (SELECT *, row_number() OVER (
        PARTITION BY id ORDER BY price DESC, "at", bid) AS n FROM {VALID}) WHERE n = 1""",
    "ranked_bid": """SELECT * FROM (SELECT *, row_number() OVER (
        PARTITION BY auction ORDER BY price DESC, "at", bid)::INT AS place FROM bids) WHERE place <= 10""",
}


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return rows of an example's file; times as DuckDB has them."""
    from datetime import datetime

    rows = [json.loads(line) for line in (EXAMPLES / f"{name}.jsonl").read_text().splitlines()]
    times = ("opens", "expires", "at")
    return [{k: datetime.fromisoformat(v) if k in times else v for k, v in row.items()} for row in rows]


def feed(name: str, ddl: str, key: str, epochs: int) -> Feed:
    rows = rows_of(name)
    renamed = [{**row, "gone": row.get("withdrawn")} for row in rows]
    size = -(-len(rows) // epochs)
    cut = [renamed[start : start + size] for start in range(0, len(rows), size)]
    return Feed(name, ddl.replace("withdrawn", "gone"), (key,), cut)


# In `make test`, tables and topics follow views in tests/spark/runs/test_views.py.
@pytest.mark.slow
def test_live_auctions_reach_postgres_with_deletes_and_chain_to_another_job(
    event_log: str, postgres: PostgresServer, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", event_log)
    feeds = [feed("auctions", AUCTIONS, "id", 2), feed("bids", BIDS, "bid", 2)]
    topics = {one.name: Topic(event_log, one.name).create(1) for one in feeds}
    where = replace(settings, log=event_log, connections={"warehouse": postgres.url})
    pipeline = load_entry(f"{EXAMPLES}/live_auction.py:auctions", [])
    run = pipeline.start(checkpoint=tmp_path / "c", settings=where)
    for epoch in range(2):
        for one in feeds:
            sent = [
                {k: v for k, v in row.items() if k != "gone"} | {"withdrawn": row["gone"]} for row in one.epochs[epoch]
            ]
            topics[one.name].produce([json.dumps(row, default=lambda t: t.isoformat()).encode() for row in sent])
        run.process_available()
        for table, query in QUERIES.items():
            assert in_postgres(postgres, table, query, feeds, epoch) == recomputed(query, feeds, epoch), table
    run.stop()
    run.wait()
    second = load_entry(f"{EXAMPLES}/live_auction.py:dearest", [])
    second.run(until="drained", checkpoint=tmp_path / "c2", settings=where)
    dearest = f"SELECT *, row_number() OVER (ORDER BY price DESC, category DESC)::INT AS place FROM ({AVERAGE})"
    query = f"SELECT * FROM ({dearest}) WHERE place <= 3"
    assert in_postgres(postgres, "dearest_category", query, feeds, 1) == recomputed(query, feeds, 1)
    watched(folder(tmp_path / "c"), recomputed(QUERIES["winning_bid"], feeds, 1))


def in_postgres(postgres: PostgresServer, table: str, query: str, feeds: list[Feed], epoch: int) -> Bag:
    names = [name for name, _ in next(iter(recomputed(query, feeds, epoch)))]
    quoted = ", ".join(f'"{name}"' for name in names)
    return bag([dict(zip(names, row, strict=True)) for row in postgres.sql(f"SELECT {quoted} FROM {table}")])


def watched(root: Any, expected: Bag) -> None:
    """Watch a view as `penstock view --watch` does: it is shown once while nothing changes."""
    shown: list[StateTable] = []
    read: Callable[[], StateTable] = lambda: read_state(root, Settings(), node="winning", limit=1000)  # noqa: E731
    follow(read, shown.append, sleep=lambda seconds: None, times=3)
    assert [len(one.rows) for one in shown] == [sum(expected.values())]


def test_baskets_follow_a_changing_table_of_prices(
    event_log: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", event_log)
    prices, items = (Topic(event_log, name).create(1) for name in ("prices", "basket-items"))
    pipeline = load_entry(str(EXAMPLES / "price_list.py"), [f"out={tmp_path}/baskets.db"])
    run = pipeline.start(checkpoint=tmp_path / "c", settings=replace(settings, log=event_log))

    def after(*sent: tuple[Topic, dict[str, Any]]) -> list[Any]:
        for topic, row in sent:
            topic.produce([json.dumps(row).encode()])
        run.process_available()
        with sqlite3.connect(tmp_path / "baskets.db") as db:
            return db.execute("SELECT customer, value, items, without_price FROM basket ORDER BY customer").fetchall()

    tea, cup = ({"product": name, "price": price} for name, price in (("tea", "2.50"), ("cup", "9.00")))
    ada = [(items, {"customer": "ada", "product": name, "quantity": n}) for name, n in (("tea", 2), ("cup", 1))]
    assert _values(after((prices, tea), (prices, cup), *ada)) == [("ada", 14.0, 3, 0)]
    assert _values(after((prices, {"product": "tea", "price": "3.00"}))) == [("ada", 15.0, 3, 0)]
    assert _values(after((prices, {"product": "cup", "ended": True}))) == [("ada", 6.0, 3, 1)]
    gone = [(items, {"customer": "ada", "product": name, "quantity": 0}) for name in ("tea", "cup")]
    assert after(*gone) == []
    run.stop()
    run.wait()


def _values(rows: list[Any]) -> list[Any]:
    return [(customer, float(value), items, without) for customer, value, items, without in rows]
