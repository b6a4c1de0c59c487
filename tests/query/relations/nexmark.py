"""Nexmark: persons, auctions and bids, and its queries. Rows have ids, so that they can be changed and deleted."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from penstock.schema import Schema

SCHEMAS = {
    "person": Schema(
        "id bigint not null, name string, email_address string, credit_card string, city string, state string, "
        "date_time timestamp not null, extra string"
    ),
    "auction": Schema(
        "id bigint not null, item_name string, description string, initial_bid bigint, reserve bigint, "
        "date_time timestamp not null, expires timestamp not null, seller bigint not null, category bigint not null, "
        "extra string"
    ),
    "bid": Schema(
        "id bigint not null, auction bigint not null, bidder bigint not null, price bigint not null, channel string, "
        "url string, date_time timestamp not null, arrived timestamp, extra string"
    ),
    "side": Schema("key bigint not null, value string"),
}
KEYS = {"person": ("id",), "auction": ("id",), "bid": ("id",), "side": ("key",)}
_BEGIN = datetime(2026, 3, 1, 5, 59, 50, tzinfo=UTC)
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu", None)
# DuckDB has no windows as functions of tables.
_WINDOWS = {
    r"TUMBLE\((\w+), date_time, INTERVAL '(\d+)' SECOND\)": r"(SELECT *, time_bucket(INTERVAL \2 SECOND, date_time) AS "
    r"window_start, time_bucket(INTERVAL \2 SECOND, date_time) + INTERVAL \2 SECOND AS window_end FROM \1)",
    r"HOP\((\w+), date_time, INTERVAL '(\d+)' SECOND, INTERVAL '(\d+)' SECOND\)": r"(SELECT *, time_bucket(INTERVAL \2 "
    r"SECOND, date_time) - to_seconds(back) AS window_start, time_bucket(INTERVAL \2 SECOND, date_time) - "
    r"to_seconds(back) + INTERVAL \3 SECOND AS window_end FROM \1, range(0, \3, \2) AS slides(back))",
}


@cache
def queries() -> dict[str, tuple[str, str]]:
    """Return the queries q0 to q22: as views have them, and as DuckDB does."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- (q\d+(?: duckdb)?)[^\n]*\n", text, flags=re.MULTILINE)[1:]
    found = {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}
    mine = {name: sql for name, sql in found.items() if " " not in name}
    return {name: (sql, found.get(f"{name} duckdb", _for_duckdb(sql))) for name, sql in mine.items()}


def _for_duckdb(sql: str) -> str:
    for pattern, replacement in _WINDOWS.items():
        sql = re.sub(pattern, replacement, sql)
    return sql


def data(events: int, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return events in Nexmark's proportions: of fifty, one is a person, three are auctions, the others bids."""
    chance = Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {"person": [], "auction": [], "bid": []}
    for number in range(events):
        time = _BEGIN + timedelta(milliseconds=number * 25, microseconds=number)
        if number % 50 == 0:
            rows["person"].append(_person(len(rows["person"]), time, chance))
        elif number % 50 < 4:
            rows["auction"].append(_auction(len(rows["auction"]), len(rows["person"]), time, chance))
        else:
            rows["bid"].append(_bid(len(rows["bid"]), len(rows["auction"]), len(rows["person"]), time, chance))
    rows["side"] = [{"key": key, "value": f"side-{key}"} for key in range(8)]
    return rows


def _person(number: int, time: datetime, chance: Random) -> dict[str, Any]:
    state = chance.choice(_STATES)
    name = f"person {number}"
    card = " ".join(str(chance.randrange(1000, 9999)) for _ in range(4))
    mail = f"{number}@example.com"
    return dict(
        zip(SCHEMAS["person"].names, (number, name, mail, card, f"city of {state}", state, time, None), strict=True)
    )


def _auction(number: int, persons: int, time: datetime, chance: Random) -> dict[str, Any]:
    price = chance.randrange(100, 10_000)
    expires = time + timedelta(seconds=chance.randrange(1, 20))
    values = (number, f"item {number}", "as new", price, price * 2, time, expires, chance.randrange(persons))
    return dict(
        zip(SCHEMAS["auction"].names, (*values, chance.randrange(10, 15), "x" * chance.randrange(3)), strict=True)
    )


def _bid(number: int, auctions: int, persons: int, time: datetime, chance: Random) -> dict[str, Any]:
    # Half of the bids are for one of the last two auctions.
    auction = auctions - 1 - chance.randrange(min(2, auctions)) if chance.random() < 0.5 else chance.randrange(auctions)
    channel = chance.choice(_CHANNELS) or f"channel-{chance.randrange(20)}"
    query = f"query=1&channel_id={chance.randrange(100)}&x=1" if chance.random() < 0.7 else "query=1"
    url = f"https://www.nexmark.com/{chance.choice('abc')}/{chance.choice('def')}/item.htm?{query}"
    price = round(10 ** (chance.random() * 6) * 100)
    arrived = time + timedelta(milliseconds=chance.randrange(3000)) if chance.random() < 0.95 else None
    values = (number, auction, chance.randrange(persons), price, channel, url, time, arrived)
    return dict(zip(SCHEMAS["bid"].names, (*values, chance.choice(["abc", "ccc", "", None])), strict=True))
