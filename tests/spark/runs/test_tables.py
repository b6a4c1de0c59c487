"""Pipelines into tables and to a web address, in the tests' own Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import BadExpression, UpdatingStream
from penstock.settings import Settings
from tests.connectors.table_sinks import sqlite_table
from tests.databases import PostgresServer


def test_a_pipeline_fills_tables_of_both_databases(
    postgres: PostgresServer, settings: Settings, tmp_path: Path
) -> None:
    lite = sqlite_table(tmp_path / "shop.db", "per_customer")
    orders = ps.datagen("orders", rows=2000, seed=2)
    per_customer = orders.key_by("customer").aggregate(orders="count(*)")
    large = ps.table("large", connection=postgres.url, mode="upsert", key="order_id", remove="amount < 500")
    pipeline = ps.Pipeline(
        "orders",
        orders.to(ps.table("all_orders", connection=postgres.url)),
        orders.to(large),
        per_customer.to(ps.table("per_customer", connection="lite", mode="upsert")),
    )
    where = replace(settings, epoch_rows=1000, connections={"lite": lite.url})
    assert "sink 'all_orders': exactly_once, " in pipeline.explain()
    pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=where)
    assert postgres.sql("SELECT count(*), count(DISTINCT order_id) FROM all_orders") == [(2000, 2000)]
    kept = postgres.sql("SELECT count(*), sum(amount) FROM all_orders WHERE amount >= 500")
    assert postgres.sql("SELECT count(*), sum(amount) FROM large") == kept
    counted = postgres.sql("SELECT customer, count(*) FROM all_orders GROUP BY customer ORDER BY customer")
    assert lite.sql("SELECT customer, orders FROM per_customer ORDER BY customer") == counted


def test_what_a_table_cannot_take_is_refused_when_it_is_built() -> None:
    orders = ps.datagen("orders")
    with pytest.raises(UpdatingStream, match=r'table with mode="upsert"'):
        orders.key_by("customer").aggregate(n="count(*)").to(ps.table("t", connection="db"))
    with pytest.raises(BadExpression, match="remove"):
        orders.to(ps.table("t", connection="db", mode="upsert", key="order_id", remove="amount + 1"))
