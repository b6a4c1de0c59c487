"""Volume-weighted average price per symbol and minute, from a topic to tables of PostgreSQL, each row once.

With the command line alone, and a database of yours:

    export PENSTOCK_CONNECTIONS=warehouse=postgresql://user:password@127.0.0.1:5432/database
    penstock log serve
    penstock topic create trades --partitions 2
    penstock produce trades --file examples/trades.jsonl
    penstock run examples/vwap_postgres.py --until ended
    psql -c 'SELECT * FROM vwap' postgresql://user:password@127.0.0.1:5432/database
"""

import penstock as ps


def vwap(source: str = "trades", window: str = "60s", connection: str = "warehouse") -> ps.Pipeline:
    """Read trades as json; write prices, late trades and what is no trade to tables."""
    trades = ps.read_topic(source, schema="symbol string not null, price double, size bigint, ts timestamp")
    prices = (
        trades.filter("size > 0")
        .event_time("ts", max_delay="5s")
        .key_by("symbol")
        .window(ps.tumbling(window), late_to=ps.table("late_trades", connection=connection))
        .aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    )
    out = prices.to(ps.table("vwap", connection=connection))
    return ps.Pipeline(f"vwap-postgres-{window}", out, rejected_to=ps.table("bad_trades", connection=connection))
