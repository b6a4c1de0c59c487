"""Jobs: what is submitted, and what the job manager returns about it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from penstock.control.api.fields import Count, MaskedObject, MaskedText, Object, Request, Response, Text, Time
from penstock.control.api.pages import Paging
from penstock.control.machine.states import JobState

Until = Literal["stopped", "drained", "ended"]


class JobError(Response):
    """Why a job failed, in one line, and what to do about it."""

    type: str = Field(examples=["SinkFailed"])
    message: MaskedText
    hint: MaskedText | None = None
    transient: bool = False
    exit_code: int | None = None


_EXAMPLE: JsonDict = {
    "id": "01jcvwap5s3n8e2q",
    "name": "vwap-60s",
    "state": "RUNNING",
    "version": 1,
    "restarts": 0,
    "pid": 4711,
    "created_at": "2026-11-17T10:00:00Z",
    "started_at": "2026-11-17T10:00:02Z",
    "lag": 120,
    "rows_per_second": 8000.0,
    "checkpoint": "data/checkpoints/01jcvwap5s3n8e2q",
}


class Job(Response):
    """A pipeline that the job manager runs."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    name: str
    state: JobState
    version: int = Field(description="version of the source that is to run")
    running_version: int | None = Field(default=None, description="version that the current run has")
    restarts: Count = 0
    pid: int | None = Field(default=None, description="process of the driver")
    created_at: Time
    started_at: Time | None = Field(default=None, description="start of the current or last run")
    ended_at: Time | None = None
    updated_at: Time | None = None
    error: JobError | None = Field(default=None, description="the last error")
    lag: int | None = Field(default=None, description="rows that the sources have and the job has not read")
    rows_per_second: float | None = Field(default=None, description="rows read, in the newest epoch")
    epoch: int | None = Field(default=None, description="number of the newest committed epoch")
    watermark: Time | None = Field(default=None, description="null before the first time, and once the input has ended")
    ended_input: bool = Field(default=False, description="the input has ended, and all windows were closed")
    checkpoint: MaskedText | None = Field(default=None, description="location of the checkpoint")
    waiting_for: MaskedText | None = Field(default=None, description="why a job in CREATED does not start")
    restart_at: Time | None = Field(default=None, description="when a job in RESTARTING starts again")
    entry: str | None = Field(default=None, description="pipeline of the source: `name`, or `FILE.py:name`")
    until: Until = "stopped"
    parallelism: int | None = None
    restart_policy: dict[str, Any] | None = None
    autoscaling: dict[str, Any] | None = None
    pool: str | None = Field(default=None, description="jobs of one pool share a driver")
    memory: str | None = None
    cores: float | None = None
    settings: MaskedObject = {}
    arguments: MaskedObject = {}


class Submission(Request):
    """What is asked for with the source of a new job. Everything has a default; the name is the pipeline's."""

    entry: Text | None = None
    name: Text | None = None
    settings: Object = {}
    arguments: Object = {}
    until: Until = "stopped"
    parallelism: int | None = Field(default=None, ge=1, le=10_000)
    restart_policy: Object | Text | None = Field(default=None, description="JSON, or fixed_delay:delay=5s,attempts=3")
    autoscaling: Object | Text | None = None
    pool: Text | None = None
    memory: Text | None = Field(default=None, description="memory of the driver, such as 2g")
    cores: float | None = Field(default=None, gt=0, le=10_000)


class Update(Request):
    """What is asked for with the source of a new version; what is not given stays as it is."""

    entry: Text | None = None
    settings: Object | None = None
    arguments: Object | None = None
    allow_drop: bool = Field(default=False, description="allow the new version to lose state of the old one")


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class JobFilter(Paging):
    """Which jobs to list, the newest first."""

    state: list[Annotated[JobState, BeforeValidator(_upper)]] = Field(default=[], description="one of these states")
    name: Text | None = Field(default=None, description="part of the name")


class Version(Response):
    """A version of the source of a job."""

    number: int
    entry: str | None = None
    digest: str = Field(description="SHA-256 of the source")
    created_at: Time
    created_by: str | None = None


class Plan(Response):
    """The physical plan of a version, as `penstock explain --json` prints it."""

    job: str
    version: int
    plan: MaskedObject
