"""Series of metrics for charts, rolled up in the store."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter

from penstock.control.api.fields import Query, Response, Text, Time

# In a query it is a text, which a literal would not take for its number.
Resolution = Annotated[Literal[10, 60, 600], BeforeValidator(TypeAdapter(int).validate_python)]


class Point(Response):
    """What was measured within one bucket of time."""

    at: Time
    min: float
    max: float
    mean: float
    last: float
    count: int


class Series(Response):
    """One metric of a job, or of one node of it."""

    metric: str
    node: str | None = None
    resolution: int = Field(description="length of a bucket in seconds")
    points: list[Point]


class SeriesList(Response):
    """Metrics of a job."""

    items: list[Series]


class SeriesQuery(Query):
    """Which metrics, of which time. Without a resolution, the finest that covers the range."""

    name: list[Text] = Field(default=[], max_length=100, description="names of metrics; none: all")
    start: Time | None = Field(default=None, description="an hour ago by default")
    end: Time | None = Field(default=None, description="now by default")
    resolution: Resolution | None = Field(default=None, description="10: an hour, 60: a day, 600: a month")


class Sparkline(Response):
    """A metric of one job over the last minutes: pairs of seconds since 1970 and the value."""

    job: str
    points: list[tuple[float, float]]


class Sparklines(Response):
    """One metric of all jobs that have it."""

    name: str
    items: list[Sparkline]


class SparklineQuery(Query):
    """Which metric, and of how many minutes. A job has at most 60 points."""

    name: Text = "rows_per_second"
    minutes: int = Field(default=10, ge=1, le=1_440)
