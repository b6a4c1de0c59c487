"""The nodes of a job's physical plan, with what the newest epoch reports of each."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from penstock.control.api.fields import Count, MaskedObject, MaskedText, Response, Time


class NodeCounts(Response):
    """Where the rows of a node went, over the life of the job: `in` is the sum of the others."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    rows_in: Count = Field(default=0, alias="in", serialization_alias="in")
    used: Count = 0
    filtered: Count = 0
    late: Count = 0
    rejected: Count = 0
    duplicate: Count = 0
    dropped: Count = 0


class Node(Response):
    """One node of a plan. Figures are null until the driver has reported them."""

    name: str
    kind: str = Field(examples=["filter"])
    label: str = Field(description="kind and name, as errors have them", examples=["filter 'large'"])
    lane: str = Field(description="where it runs", examples=["native"])
    reason: MaskedText | None = Field(default=None, description="why not in the native lane")
    inputs: list[str] = Field(default=[], description="names of the nodes whose rows come in")
    detail: MaskedText = Field(default="", description="its SQL, columns or functions")
    columns: dict[str, str] | None = Field(default=None, description="columns that leave it, with their types")
    target: MaskedText | None = Field(default=None, description="where the rows of a sink go")
    warning: MaskedText | None = None
    stateful: bool = False
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: Time | None = None
    ended_input: bool = Field(default=False, description="the input has ended: no watermark holds rows back any more")
    rate: float | None = Field(default=None, description="rows in per second, in the newest epoch")
    backpressure: float | None = Field(default=None, description="part of the rows that were there and left unread")
    counts: NodeCounts | None = None


class NodeList(Response):
    """The nodes of a job, sources first and sinks last, as of an epoch."""

    version: int = Field(description="version of the source that the plan is of")
    epoch: int | None = Field(default=None, description="the newest committed epoch")
    at: Time | None = Field(default=None, description="when the driver reported it")
    items: list[Node]


class PlanPreview(Response):
    """The plan of a pipeline that was not submitted."""

    pipeline: str
    plan: MaskedObject
    explain: MaskedText = Field(default="", description="as `penstock explain` prints it")
    nodes: list[Node]
    warnings: list[MaskedText] = []
