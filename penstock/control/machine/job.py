"""What the state machine knows of a job.

Invariants, which `Job.check` verifies:
- A run is set exactly in the states in which a driver may run, so there is at most one.
- RESTARTING has `restart_at`, and no other state has it.
- STOPPING and CANCELLING have the request that caused them; RUNNING and the final states have none.
- A savepoint is in progress only while a driver may run.
- FAILING has the reason why its run is being killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from penstock.control.machine.failure import Failure
from penstock.control.machine.restart_policies import DEFAULT, RestartPolicy, restart_policy
from penstock.control.machine.states import JobState


class RequestKind(StrEnum):
    """What a user, or the shutdown of the job manager, asked for."""

    STOP = "stop"
    CANCEL = "cancel"
    RESTART = "restart"
    UPDATE = "update"
    RESCALE = "rescale"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request in progress: why the job stops, and what happens next.

    A restart, update or rescale is *applied* when the old run has ended and the job has its new version and
    parallelism; it is then on trial until the job is RUNNING, and is rolled back if that fails.
    """

    kind: RequestKind
    command: str | None = None  # None: of nobody, as for a shutdown
    savepoint: str | None = None  # the name of the savepoint that the stop creates
    savepoint_path: str | None = None
    savepoint_error: str | None = None
    version: int | None = None
    parallelism: int | None = None
    old_version: int | None = None
    old_parallelism: int | None = None
    applied: bool = False
    was_final: bool = False  # the job did not run before, so a rollback does not start it

    @property
    def is_change(self) -> bool:
        """Whether the job starts again afterwards."""
        return self.kind in (RequestKind.RESTART, RequestKind.UPDATE, RequestKind.RESCALE)

    @property
    def on_trial(self) -> bool:
        """Whether a failure rolls back to the old version or parallelism."""
        return self.applied and self.kind in (RequestKind.UPDATE, RequestKind.RESCALE)

    @property
    def lacks_savepoint(self) -> bool:
        """Whether a savepoint was asked for, and was not created."""
        return self.savepoint is not None and self.savepoint_path is None

    @property
    def target(self) -> str:
        """What a change leads to, in words."""
        return f"parallelism {self.parallelism}" if self.kind is RequestKind.RESCALE else f"version {self.version}"

    @property
    def origin(self) -> str:
        """What a rollback leads to, in words."""
        if self.kind is not RequestKind.RESCALE:
            return f"version {self.old_version}"
        return f"parallelism {self.old_parallelism}" if self.old_parallelism else "the default parallelism"


@dataclass(frozen=True, slots=True)
class SavepointInProgress:
    """A savepoint of a running job."""

    command: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the state machine sees it. Times are seconds since 1970."""

    id: str
    name: str
    state: JobState = JobState.CREATED
    version: int = 1  # the version that the next start runs
    running_version: int | None = None  # the version that was RUNNING last
    parallelism: int | None = None  # None: the default of the driver
    run: str | None = None
    attempt: int = 0  # number of runs so far
    restarts: int = 0  # of these, restarts after a failure
    policy: RestartPolicy = DEFAULT
    failures: tuple[float, ...] = ()  # times of failures since the last start by a user, the newest last
    error: Failure | None = None  # the last failure since the job was RUNNING
    killing: Failure | None = None  # why the run is being killed
    request: Request | None = None
    savepoint: SavepointInProgress | None = None
    restore_from: str | None = None  # the savepoint that the next start restores; cleared once RUNNING
    waiting: str | None = None  # why a CREATED job does not fit
    restart_at: float | None = None
    deadline: float | None = None  # when a driver that does not start, stop or end is killed
    deleted: bool = False
    finished_commands: tuple[str, ...] = field(default=(), repr=False)  # the newest, so that replays are recognised

    @property
    def wake_at(self) -> float | None:
        """When the job needs a `TimerDue`."""
        return self.restart_at if self.restart_at is not None else self.deadline

    def knows(self, command: str) -> bool:
        """Whether the command was finished lately, or is in progress."""
        in_progress = {item.command for item in (self.request, self.savepoint) if item}
        return command in in_progress or command in self.finished_commands

    def check(self) -> None:
        """Verify the invariants."""
        assert (self.run is not None) == self.state.has_run, f"{self.state} with run {self.run}"
        assert (self.restart_at is not None) == (self.state is JobState.RESTARTING)
        if self.state in (JobState.STOPPING, JobState.CANCELLING):
            assert self.request is not None
        if self.state is JobState.RUNNING or self.state.is_final:
            assert self.request is None, f"{self.state} with a request to {self.request and self.request.kind}"
        assert self.savepoint is None or self.run is not None
        assert self.killing is None or self.run is not None
        assert self.killing is not None or self.state is not JobState.FAILING

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        value = asdict(self) | {"policy": self.policy.to_json()}
        return value | {"failures": list(self.failures), "finished_commands": list(self.finished_commands)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Job:
        """Read what `to_json` wrote."""
        request, savepoint = value.get("request"), value.get("savepoint")
        read: dict[str, Any] = {
            "state": JobState(value["state"]),
            "policy": restart_policy(value["policy"]),
            "failures": tuple(value.get("failures", ())),
            "finished_commands": tuple(value.get("finished_commands", ())),
            "error": _failure(value.get("error")),
            "killing": _failure(value.get("killing")),
            "request": Request(**request | {"kind": RequestKind(request["kind"])}) if request else None,
            "savepoint": SavepointInProgress(**savepoint) if savepoint else None,
        }
        return cls(**{**value, **read})


def _failure(value: Mapping[str, Any] | None) -> Failure | None:
    return Failure.from_json(value) if value else None
