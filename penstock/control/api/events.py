"""Events: what happens to jobs, as it happens."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from penstock.control.api.fields import JobName, Query, Response, Time

SUBSCRIBED = "subscribed"
MISSED = "missed"


class Event(Response):
    """One event. Further fields depend on its kind.

    The first one is of kind `subscribed`: what happens after it is sent. One of kind `missed` stands for so many
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
