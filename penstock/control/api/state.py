"""The state of a job: keys, and open windows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from penstock.control.api.fields import Query, Response, Text


class StateTable(Response):
    """Rows of the state of a node after an epoch. Rows of a window are its open windows."""

    node: str
    epoch: int
    columns: list[str]
    rows: list[dict[str, Any]]
    offsets: dict[str, dict[str, Any]] = Field(default={}, description="offsets by source and partition")
    more: bool = Field(default=False, description="whether the limit left rows out")


class StateQuery(Query):
    """Which state: of which node, of which key."""

    node: Text | None = Field(default=None, description="the node, if several have state")
    key: Text | None = Field(default=None, description="only rows of this key; with several columns: A,B")
    epoch: int | None = Field(default=None, ge=0, le=2**62, description="state after this epoch; the last by default")
    limit: int = Field(default=100, ge=1, le=1_000)
