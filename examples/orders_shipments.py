"""Orders with their shipments: those that were shipped in time, and those that were not.

penstock run examples/orders_shipments.py --until ended
"""

import penstock as ps


def shipped(out: str = "shipped", within: str = "1m", rows: int = 20_000) -> ps.Pipeline:
    """Join each order with its shipments of the next minute; what has none by then is an alert."""
    placed = ps.datagen("orders", rows=rows, keys=500, seed=3)
    orders = placed.event_time("ts", max_delay="5s")
    # Every tenth order is forgotten; the others leave within 50 seconds.
    sent = placed.filter("order_id % 10 > 0").select(
        "order_id", carrier="concat('carrier-', order_id % 3)", ts="timestampadd(SECOND, order_id % 50, ts)"
    )
    shipments = sent.event_time("ts", max_delay="5s")
    both = orders.join(shipments, on="order_id", how="left", within=("0s", within)).split(unshipped="ts_right IS NULL")
    return ps.Pipeline(
        "orders",
        both["rest"].to(ps.files(f"{out}/shipped")),
        both["unshipped"].to(ps.files(f"{out}/alerts")),
    )
