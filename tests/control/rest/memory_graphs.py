"""The plans and nodes of a job manager without a store."""

from __future__ import annotations

from penstock.control.api.differences import ChangedNode, Difference
from penstock.control.api.jobs import Job, Submission
from penstock.control.api.nodes import Node, NodeCounts, NodeList, PlanPreview
from penstock.control.api.samples import Diverted, DivertedQuery, DivertedRow, NodeSample, Replay, Replayed
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

    def difference(self, job: str, version: int, to: int | None) -> Difference:
        self.get_job(job)
        changed = [ChangedNode(name="large", what=["detail"], before=NODES[1], after=NODES[1])]
        return Difference(
            version=version, to=to or 2, added=NODES[:1], removed=[], changed=changed, state="kept", reasons=["kept"]
        )

    def version_source(self, job: str, version: int) -> str:
        self.get_job(job)
        return "import penstock as ps\n"

    def sample(self, job: str, node: str, limit: int) -> NodeSample:
        self.get_job(job)
        return NodeSample(columns=["n"], rows=[{"n": 1}], source="topic", note="the newest records")

    def diverted(self, job: str, query: DivertedQuery) -> Diverted:
        self.get_job(job)
        row = DivertedRow(node="trades", reason="not JSON", partition=0, offset=7, raw_base64="ew==")
        return Diverted(kind=query.kind, target="topic 'bad'", items=[row])

    def replay(self, job: str, request: Replay) -> Replayed:
        self.get_job(job)
        return Replayed(replayed=request.limit or 3, to="topic 'trades'")

    def sparklines(self, query: SparklineQuery) -> list[Sparkline]:
        return [Sparkline(job="job0001", points=[(1.0, 2.0)])]
