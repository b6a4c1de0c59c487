"""What a job has done: epochs, checkpoints, savepoints, transitions and exceptions."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from penstock.control.api.fields import Count, MaskedText, Response, Time


class Epoch(Response):
    """One committed epoch."""

    number: int
    at: Time = Field(description="when it was committed")
    rows_in: Count = 0
    rows_out: Count = 0
    late: Count = 0
    rejected: Count = 0
    duration_ms: float = 0
    phases: dict[str, Any] = Field(default={}, description="duration of its phases in ms")
    watermark: Time | None = None
    ended_input: bool = Field(default=False, description="the input has ended: the watermark has passed every window")


class Checkpoint(Response):
    """A consistent cut that the job can restart from: one per epoch that is retained."""

    epoch: int
    location: MaskedText
    at: Time | None = None
    duration_ms: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None


class Savepoint(Response):
    """A named copy of a job's checkpoint."""

    name: str
    path: MaskedText | None = None
    created_at: Time
    state: str = Field(examples=["complete"])
    version: int | None = None


class Transition(Response):
    """One transition of a job's state, and its cause."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    seq: int
    source: str | None = Field(default=None, alias="from", serialization_alias="from")
    target: str = Field(alias="to", serialization_alias="to")
    cause: MaskedText
    at: Time


class JobException(Response):
    """An error of a run."""

    at: Time
    type: str
    message: MaskedText
    hint: MaskedText | None = None
    run: str | None = None
