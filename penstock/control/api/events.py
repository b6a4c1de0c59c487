"""Events: what happens to jobs, as it happens."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from penstock.control.api.fields import Query, Response, Time

JobName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]
SUBSCRIBED = "subscribed"


class Event(Response):
    """One event. Further fields depend on its kind.

    The first one is of kind `subscribed`: what happens after it is not missed. One whose `missed` is above 0 follows
    events that were dropped because the client read too slowly: get the jobs again.
    """

    model_config = ConfigDict(extra="allow")

    seq: int = Field(description="grows with each event of this manager")
    at: Time
    kind: str = Field(examples=["state"])
    job: str | None = None


class EventQuery(Query):
    """Which events: of one job or of all, and after which one."""

    job: JobName | None = None
    after: int | None = Field(default=None, ge=0, le=2**62, description="repeat recent events with a higher `seq`")
