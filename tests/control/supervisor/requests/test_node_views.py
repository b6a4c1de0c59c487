"""The nodes of a plan with what the newest epoch reports of them."""

from __future__ import annotations

from typing import Any

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.nodes import NodeFigures
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.requests.node_views import node_list, preview
from penstock.control.supervisor.requests.plan_checks import CheckedPlan


def planned(id: str, name: str, *inputs: str, **fields: Any) -> dict[str, Any]:
    plain = {
        "kind": "filter",
        "title": f"filter '{name}'",
        "lane": "native",
        "detail": "n > 0",
        "columns": {"n": "int"},
    }
    return {"id": id, "name": name, "inputs": list(inputs), **plain, **fields}


PLAN = {
    "nodes": [
        planned("source trades", "trades", kind="read"),
        planned("vwap", "vwap", "source trades", state={"bounded": False}),
        planned("sink trades", "sink trades", "vwap", kind="write"),
    ],
    "sinks": [{"name": "trades", "guarantee": "at_least_once", "guarantee_reason": "it has no ledger"}],
}
FIGURES = NodeFigures(
    job="j1",
    epoch=7,
    at=60.0,
    nodes={
        "vwap": {
            **{"in": 10, "used": 6, "filtered": 0, "late": 3, "rejected": 1, "duplicate": 0, "dropped": 0},
            **{"rate": 5.0, "state_rows": 2, "state_bytes": 300, "backpressure": None},
            "watermark": "9998-12-31T23:59:55+00:00",
        },
        "gone": {"in": 1},
    },
)
VERSION = Version(job="j1", number=2, entry="a.py", digest="", plan=PLAN)


def job(**fields: Any) -> Job:
    return Job(id="j1", name="prices", state="RUNNING", version=2, **fields)


def test_nodes_are_named_and_have_the_figures_of_the_newest_epoch() -> None:
    found = node_list(VERSION, job(), FIGURES)
    trades, vwap, sink = found.items
    assert (found.epoch, [node.inputs for node in found.items]) == (7, [[], ["trades"], ["vwap"]])
    assert (trades.counts, sink.counts, trades.stateful, vwap.stateful) == (None, None, False, True)
    assert vwap.counts is not None
    assert vwap.counts.model_dump(by_alias=True) == {
        **{"in": 10, "used": 6, "filtered": 0, "late": 3, "rejected": 1, "duplicate": 0, "dropped": 0}
    }
    assert (vwap.rate, vwap.state_rows, vwap.state_bytes) == (5.0, 2, 300)
    assert (vwap.watermark, vwap.ended_input) == (None, True)


def test_a_job_that_reads_nothing_has_no_rate() -> None:
    assert node_list(VERSION, job(progress={"rows_in_per_s": 0.0}), FIGURES).items[1].rate == 0


def test_a_preview_warns_of_state_that_grows_and_of_weak_guarantees() -> None:
    assert preview(CheckedPlan("prices", PLAN)).warnings == [
        "filter 'vwap': nothing removes entries from its state",
        "sink 'trades': at_least_once, it has no ledger",
    ]
