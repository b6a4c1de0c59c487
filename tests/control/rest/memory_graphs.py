"""The plans and nodes of a job manager without a store."""

from __future__ import annotations

from penstock.control.api.jobs import Job, Submission
from penstock.control.api.nodes import Node, NodeCounts, NodeList, PlanPreview
from penstock.control.api.series import Sparkline, SparklineQuery
from penstock.control.rest.manager import Source

NODES = [
    Node(name="trades", kind="read", label="read 'trades'", lane="native", columns={"n": "bigint"}),
    Node(
        name="large",
        kind="filter",
        label="filter 'large'",
        lane="native",
        inputs=["trades"],
        detail="url = 'kafka://ada:topsecret@a:1'",
        counts=NodeCounts(rows_in=5, used=3, filtered=2),
    ),
]


class MemoryGraphs:
    """One plan for all jobs."""

    def get_job(self, job: str) -> Job:
        raise NotImplementedError

    def preview(self, submission: Submission, source: Source) -> PlanPreview:
        return PlanPreview(pipeline="vwap", plan={"sources": []}, nodes=NODES, warnings=["the state grows"])

    def nodes(self, job: str, version: int | None) -> NodeList:
        self.get_job(job)
        return NodeList(version=version or 1, epoch=9, items=NODES)

    def sparklines(self, query: SparklineQuery) -> list[Sparkline]:
        return [Sparkline(job="job0001", points=[(1.0, 2.0)])]
