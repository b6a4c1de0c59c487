"""Volume-weighted average price per symbol and minute, from topic to topic.

With the command line alone:

    penstock log serve
    penstock topic create trades --partitions 2
    penstock produce trades --file examples/trades.jsonl
    penstock run examples/vwap_topics.py --until ended
    penstock consume vwap
"""

import penstock as ps


def vwap(source: str = "trades", window: str = "60s", connection: str = "log") -> ps.Pipeline:
    """Read trades as json; write prices, late trades and payloads that are no trades to topics of their own."""
    trades = ps.read_topic(
        source,
        schema="symbol string not null, price double, size bigint, ts timestamp",
        connection=connection,
    )
    prices = (
        trades.filter("size > 0")
        .event_time("ts", max_delay="5s")
        .key_by("symbol")
        .window(ps.tumbling(window), late_to=ps.topic("late-trades", connection=connection))
        .aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    )
    out = prices.to(ps.topic("vwap", key="symbol", connection=connection))
    return ps.Pipeline(f"vwap-topics-{window}", out, rejected_to=ps.topic("bad-trades", connection=connection))
