"""Commands to a job: stored before they are carried out, and followed by their id."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from penstock.control.api.fields import MaskedObject, MaskedText, Request, Response, Time

Kind = Literal["stop", "cancel", "restart", "rescale", "update", "savepoint", "delete"]
# A savepoint is a folder of this name.
SavepointName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Command(Response):
    """What was asked of a job, by whom, and what became of it."""

    id: str
    job: str
    kind: str = Field(examples=["stop"])
    arguments: MaskedObject = {}
    requested_by: str | None = None
    requested_at: Time
    state: Literal["open", "done", "failed"]
    message: MaskedText | None = Field(default=None, description="the result, or why it failed")
    done_at: Time | None = None


class Stop(Request):
    """Finish the epoch and stop; with a savepoint if asked."""

    savepoint: bool | SavepointName = Field(
        default=False, description="a name, or true for a name by the time", examples=[True]
    )


class Restart(Request):
    """Start again from the checkpoint."""


class Rescale(Request):
    """Stop with a savepoint, and go on with another parallelism."""

    parallelism: int = Field(ge=1, le=10_000, examples=[4])


class TakeSavepoint(Request):
    """Create a savepoint of the running job."""

    name: SavepointName | None = Field(
        default=None, description="without one, a name by the time", examples=["before-1.2"]
    )
