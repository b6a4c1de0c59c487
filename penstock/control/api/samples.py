"""Rows of a job: samples of nodes, rejected and late rows, and the replay of these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.control.api.fields import MaskedText, Query, Request, Response, Time

DivertedKind = Literal["rejected", "late"]


class NodeSample(Response):
    """Some rows of a node."""

    columns: list[str]
    rows: list[dict[str, Any]]
    source: Literal["topic", "file", "table", "source", "state", "sink", "preview"] = Field(
        description="where the rows are from; preview: computed now from rows of the source"
    )
    note: MaskedText = Field(default="", description="what a reader should know of them")


class SampleQuery(Query):
    """How many rows."""

    limit: int = Field(default=20, ge=1, le=200)


class DivertedRow(Response):
    """A row that a job has rejected, or that came too late."""

    at: Time | None = Field(default=None, description="when it was written, where a topic has it")
    node: str | None = None
    reason: MaskedText | None = None
    source: str | None = Field(default=None, description="the source that it came from")
    position: str | None = Field(default=None, description="TOPIC/PARTITION@OFFSET or FILE:BYTE")
    partition: int | None = None
    offset: int | None = None
    epoch: int | None = None
    raw_base64: str | None = Field(default=None, description="the bytes that could not be parsed, the first 7,500")
    row: dict[str, Any] | None = Field(default=None, description="what the node was given")


class Diverted(Response):
    """The newest rejected or late rows of a job, as the sink of these has them."""

    kind: DivertedKind
    target: MaskedText
    items: list[DivertedRow]
    note: MaskedText = ""


class DivertedQuery(Query):
    """Which rows, and how many."""

    kind: DivertedKind = "rejected"
    limit: int = Field(default=50, ge=1, le=500)


class Replay(Request):
    """Send rejected rows back to the source that they came from."""

    kind: DivertedKind = "rejected"
    limit: int | None = Field(default=None, ge=1, le=10_000_000, description="most rows that each source gets")


class LostRows(Response):
    """Rows that cannot be replayed, and why."""

    node: str
    reason: MaskedText
    rows: int


class Replayed(Response):
    """What was sent back. Each row goes back once, however often it is asked for."""

    replayed: int
    to: MaskedText | None = Field(default=None, description="where the rows were written")
    before: int = Field(default=0, description="rows that were replayed before")
    rejected: int = Field(default=0, description="rejected rows that there are")
    lost: list[LostRows] = []
