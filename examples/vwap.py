"""Volume-weighted average price per symbol and minute; late trades go to a folder of their own.

Make some trades and run it, until the input ends:

    penstock run examples/vwap.py --set data=market --until ended
"""

import penstock as ps


def vwap(data: str = "market", window: str = "60s", rows: int = 200_000) -> ps.Pipeline:
    """Read generated trades and write prices and late trades as Parquet."""
    trades = ps.datagen("trades", rows=rows, keys=100, seed=7)
    prices = (
        trades.filter("size > 0")
        .event_time("ts", max_delay="5s")
        .key_by("symbol")
        .window(ps.tumbling(window), late_to=ps.files(f"{data}/late"))
        .aggregate(vwap="sum(price * size) / sum(size)", volume="sum(size)", trades="count(*)")
    )
    return ps.Pipeline(f"vwap-{window}", prices.to(ps.files(f"{data}/vwap")))
