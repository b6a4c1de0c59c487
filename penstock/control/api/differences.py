"""What differs between two versions of a job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.control.api.fields import MaskedText, Response
from penstock.control.api.nodes import Node


class ChangedNode(Response):
    """A node of both versions that is not the same."""

    name: str
    what: list[str] = Field(description="what differs", examples=[["detail", "columns"]])
    before: Node
    after: Node


class Difference(Response):
    """Nodes that a version has and another has not, and what becomes of the state."""

    version: int
    to: int
    added: list[Node]
    removed: list[Node]
    changed: list[ChangedNode]
    state: Literal["kept", "dropped", "refused"] = Field(
        description="dropped: the update was allowed to lose state; refused: an update needs allow_drop"
    )
    reasons: list[MaskedText] = Field(default=[], description="what becomes of the state of changed nodes")
