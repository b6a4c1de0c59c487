"""Promise: an expression of a view that fails on a row stops the job, and no row is lost: a later run continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import ExpressionFailed
from penstock.settings import Settings
from tests.spark.runs.test_views import put, stream
from tests.spark.view_oracle import Bag, Feed, bag

ORDERS = "id bigint, amount string, gone boolean"


def totals(data: Path, feed: Feed, *, checked: bool = False) -> ps.Pipeline:
    """Sum amounts; with `checked` orders whose amount is no number are rejected upstream of the view."""
    orders = stream(data, feed)
    if checked:
        orders = orders.filter("gone OR cast(amount as bigint) IS NOT NULL").named("checked")
    view = orders.view("id", "amount", remove="gone").with_columns(cents="cast(amount as bigint) * 100")
    total = view.group_by(even="id % 2 = 0").aggregate(total="sum(cents)", n="count(*)").named("total")
    bad = ps.files(str(data / "bad"))
    return ps.Pipeline("p", total.to(ps.files(str(data / "out")), whole=True), rejected_to=bad)


def found(data: Path) -> Bag:
    return bag(pq.read_table(data / "out" / "view.parquet").to_pylist())


def rows(*pairs: tuple[bool, int, int]) -> Bag:
    return bag([dict(zip(("even", "total", "n"), pair, strict=True)) for pair in pairs])


def test_a_row_that_fails_stops_the_job_and_the_next_plan_rejects_it(settings: Settings, tmp_path: Path) -> None:
    feed = Feed("orders", ORDERS)
    feed.epochs = [
        [order(1, "10"), order(2, "20"), order(3, "30")],
        [order(2, "2x"), order(1, "11")],
        [order(2, gone=True), order(4, "40")],
    ]

    def run(number: int) -> None:
        pipeline = totals(tmp_path, feed)
        put(tmp_path, feed, number)
        pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=settings)

    run(0)
    first = rows((False, 4000, 2), (True, 2000, 1))
    assert found(tmp_path) == first
    with pytest.raises(ExpressionFailed) as failed:
        run(1)
    assert failed.value.node == "view 'total'"
    assert failed.value.message == (
        """project 'id, amount, cast(amount as bigint) * 100 as cents': "CAST(amount AS BIGINT)" failed in """
        """"cast(amount as bigint) * 100": it cannot be cast to bigint; the input row was {'id': 2, 'amount': '2x'}"""
    )
    assert "no row is lost" in str(failed.value.hint)
    assert "__penstock" not in str(failed.value)
    # Nothing of the epoch is there, also not the change of order 1; and nothing was rejected.
    assert found(tmp_path) == first
    assert not [*(tmp_path / "bad").glob("**/*.parquet")]
    # The view is the same, so its state is. The rejected change of order 2 leaves the row before it in the view.
    checked = totals(tmp_path, feed, checked=True)
    running = checked.start(checkpoint=tmp_path / "c", settings=settings, allow_drop=["out"])
    running.process_available()
    assert found(tmp_path) == rows((False, 4100, 2), (True, 2000, 1))
    (rejected,) = pq.read_table(tmp_path / "bad").to_pylist()
    assert (rejected["node"], json.loads(rejected["row"])) == ("checked", order(2, "2x"))
    put(tmp_path, feed, 2)
    running.process_available()
    running.stop()
    running.wait()
    assert found(tmp_path) == rows((False, 4100, 2), (True, 4000, 1))


def order(number: int, amount: str | None = None, *, gone: bool | None = None) -> dict[str, Any]:
    return {"id": number, "amount": amount, "gone": gone}
