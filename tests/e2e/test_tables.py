"""From a topic to tables of PostgreSQL with the command line alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from penstock.connectors.formats.json.writer import json_documents
from penstock.connectors.generators.datagen import DataGen
from tests.connectors.kafka_topics import fresh
from tests.databases import PostgresServer
from tests.e2e.test_topics import EXPECTED, ROOT


def test_vwap_goes_from_a_topic_to_tables(
    event_log: str, postgres: PostgresServer, tmp_path: Path, penstock: Callable[..., str]
) -> None:
    source = fresh(event_log, "trades")
    rows = next(iter(DataGen("trades", rows=10_000, keys=50, seed=3).read("0", 0, 10_000)))
    (tmp_path / "trades.json").write_text("\n".join([*json_documents(rows).to_pylist(), "no trade"]))
    where = {"PENSTOCK_LOG": event_log, "PENSTOCK_CONNECTIONS": f"warehouse={postgres.url}"}
    penstock("topic", "create", source.name, "--partitions", "2", **where)
    penstock("produce", source.name, "--file", "trades.json", **where)
    job = ["run", str(ROOT / "examples/vwap_postgres.py"), "--set", f"source={source.name}", "--until", "ended"]
    penstock(*job, "--checkpoint", "c", PENSTOCK_EPOCH_ROWS="5000", **where)
    found = {row[:3]: row[3] for row in postgres.sql("SELECT symbol, volume, trades, vwap FROM vwap")}
    wanted: list[Any] = duckdb.sql(EXPECTED).fetchall()
    assert len(found) == len(wanted)
    assert all(math.isclose(found[symbol, volume, n], vwap, rel_tol=1e-12) for symbol, vwap, volume, n in wanted)
    assert postgres.sql('SELECT reason IS NOT NULL, "raw" FROM bad_trades') == [(True, b"no trade")]
