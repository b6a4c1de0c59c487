"""What the supervisor has to do. Each may be carried out again after a crash, with the same effect.

`FinishCommand`, `RecordException` and `RemoveFiles` follow from one event only: store them, or their effect, in the
transaction that stores the job. All others follow from the job as it is: `outstanding(job)` returns them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.machine.failure import Failure


@dataclass(frozen=True, slots=True)
class RequestSlots:
    """Find cores and memory for the job; report `FitsNow` or `DoesNotFit`, again whenever that may have changed."""

    parallelism: int | None


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a driver with this run id, unless the run exists already; report `DriverRunning` or `LaunchFailed`."""

    run: str
    attempt: int
    version: int
    parallelism: int | None
    restore_from: str | None = None


@dataclass(frozen=True, slots=True)
class AskStop:
    """Have the driver finish its epoch, stop and create the savepoint; report `DriverEnded`."""

    run: str
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class AskCancel:
    """Have the driver stop without finishing its epoch; report `DriverEnded`."""

    run: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End all processes of the run; report `DriverGone` once they do not exist, or `DriverEnded` by its outcome."""

    run: str
    why: str


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Have the driver create a savepoint; report `SavepointCreated` or `SavepointFailed`."""

    run: str
    name: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Report `TimerDue` at this time, in seconds since 1970. It replaces the job's earlier timer."""

    time: float


@dataclass(frozen=True, slots=True)
class FinishCommand:
    """The command is done, or has failed; the message is for the user who sent it."""

    command: str
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class RecordException:
    """Add the error to the job's exceptions."""

    run: str
    error: Failure


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Delete the versions, runs and checkpoint of the job; its savepoints are kept."""


Instruction = (
    RequestSlots
    | Launch
    | AskStop
    | AskCancel
    | Kill
    | TakeSavepoint
    | WakeAt
    | FinishCommand
    | RecordException
    | RemoveFiles
)
