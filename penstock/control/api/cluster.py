"""The job manager itself: who is active, its drivers and resources."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.control.api.fields import MaskedText, Response, Time


class Driver(Response):
    """A driver process of this manager."""

    run: str
    pid: int | None = None
    spare: bool = False
    pool: str | None = None
    jobs: list[str] = []
    memory_bytes: int | None = Field(default=None, description="resident memory of the process tree")
    started_at: Time | None = None
    connected: bool = False


class Cluster(Response):
    """The job manager and what it runs on."""

    version: str
    manager: str = Field(description="name of this manager")
    role: Literal["active", "standby"]
    active_manager: str | None = Field(default=None, description="holder of the lease")
    started_at: Time
    store: MaskedText
    log: MaskedText | None = None
    spark_master: MaskedText | None = None
    cores: float
    cores_used: float = 0
    memory_bytes: int
    memory_used_bytes: int = 0
    jobs: dict[str, int] = Field(default={}, description="number of jobs by state")
    drivers: list[Driver] = []


class Health(Response):
    """The process answers."""

    status: Literal["ok"] = "ok"
    version: str


class Check(Response):
    """One thing that the manager needs."""

    name: str = Field(examples=["store"])
    ok: bool
    detail: MaskedText | None = None


class Readiness(Response):
    """Whether the manager can serve requests."""

    ready: bool
    checks: list[Check] = []
