"""Trades above a value, from topic to topic, as soon as they come.

With the command line alone:

    penstock jars fetch kafka
    penstock log serve
    penstock topic create trades
    penstock run examples/large_trades.py &
    penstock produce trades --file examples/trades.jsonl
    penstock consume large-trades --max 5
"""

import penstock as ps


def large_trades(source: str = "trades", least: int = 1000, connection: str = "log") -> ps.Pipeline:
    """Read trades as json; write those of at least so much value, and payloads that are no trades, at once."""
    trades = ps.read_topic(
        source,
        schema="symbol string not null, price double, size bigint, ts timestamp",
        connection=connection,
    )
    large = trades.with_columns(value="price * size").filter(f"value >= {int(least)}")
    out = large.to(ps.topic("large-trades", key="symbol", connection=connection))
    return ps.Pipeline("large-trades", out, rejected_to=ps.topic("bad-trades", connection=connection), pace="realtime")
