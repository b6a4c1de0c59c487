"""Find large payments that follow a tiny one within a minute, and keep what led to each.

penstock run examples/fraud.py --set out=frauds --until ended
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import penstock as ps

MINUTE = timedelta(minutes=1)


class Fraud(ps.Process):
    """A thief tries a card with a tiny payment first."""

    output = "card string, amount double, ts timestamp"
    sides = {"audit": "card string, past array<double>"}
    tiny = ps.state.value(bool, ttl="1h")
    past = ps.state.list(float)

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Iterator[Any]:
        """Remember tiny payments for a minute, and tell of large ones that follow."""
        self.past.append(row["amount"])
        if row["amount"] < 1:
            self.tiny.set(True)
            ctx.set_timer(row["ts"] + MINUTE)
        elif row["amount"] > 500 and self.tiny.get():
            yield row
            yield "audit", {**ctx.key, "past": self.past}

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> None:
        """Forget the tiny payment."""
        self.tiny.clear()


def frauds(out: str = "frauds", rows: int = 10_000) -> ps.Pipeline:
    """Payments are made up: trades, with the symbol for the card."""
    trades = ps.datagen("trades", rows=rows, keys=200).with_columns(amount="price * size / 500")
    payments = trades.select("amount", "ts", card="symbol").event_time("ts", "5s")
    found = payments.key_by("card").process(Fraud())
    return ps.Pipeline(
        "fraud",
        found.to(ps.files(f"{out}/payments", format="json")),
        found.side("audit").to(ps.files(f"{out}/audit", format="json")),
    )
