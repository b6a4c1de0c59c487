"""What happens to a job: commands of users, and reports of the supervisor.

A command has the id of its row in the store; each id gets exactly one `FinishCommand`, at once or later. Every event
may be delivered again, after a crash of the job manager: the machine ignores what it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.control.machine.failure import Failure
from penstock.errors import BadValue, choices


class Outcome(StrEnum):
    """How a run ended, as its driver reports it."""

    FINISHED = "finished"
    STOPPED = "stopped"
    CANCELED = "canceled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Command:
    """A user's command; `command` is its id in the store."""

    command: str


@dataclass(frozen=True, slots=True)
class StopRequested(Command):
    """Finish the epoch, create the savepoint if one is named, and stop."""

    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested(Command):
    """Stop without finishing the epoch."""


@dataclass(frozen=True, slots=True)
class RestartRequested(Command):
    """Stop if the job runs, and start it from its checkpoint."""


@dataclass(frozen=True, slots=True)
class RescaleRequested(Command):
    """Stop with a savepoint, and start with another parallelism; go back to the old one if it does not run."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class UpdateRequested(Command):
    """Stop with a savepoint, and start another version; go back to the old one if it does not run."""

    version: int


@dataclass(frozen=True, slots=True)
class SavepointRequested(Command):
    """Create a savepoint while the job runs."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteRequested(Command):
    """Delete a job that has ended, with its files."""


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The job manager shuts down and takes its jobs with it: stop, and leave the job to be resumed by the next one.

    Until then the job manager reports no `FitsNow` and no `TimerDue`.
    """


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job was stored."""


@dataclass(frozen=True, slots=True)
class FitsNow:
    """Cores and memory are free for the job."""


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Cores or memory are not free for the job; the reason names the amounts."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimerDue:
    """The time of the last `WakeAt` has come. Only the job's own `wake_at` counts, so one too many does no harm."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """A report about one run; that of an earlier run is ignored."""

    run: str


@dataclass(frozen=True, slots=True)
class LaunchFailed(RunReport):
    """The driver could not be started. There is no process."""

    error: Failure


@dataclass(frozen=True, slots=True)
class DriverRunning(RunReport):
    """The driver processes epochs."""


@dataclass(frozen=True, slots=True)
class DriverEnded(RunReport):
    """The run is over, and the driver has released the checkpoint. `savepoint` is the path of the one it created."""

    outcome: Outcome
    error: Failure | None = None
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class DriverLost(RunReport):
    """The run must be killed: heartbeats are missing, or it exceeds a limit. Its process may still exist."""

    why: str


@dataclass(frozen=True, slots=True)
class EpochStalled(RunReport):
    """No epoch was committed for too long, although there is input."""

    why: str = "no epoch was committed for too long, although there is input"


@dataclass(frozen=True, slots=True)
class DriverGone(RunReport):
    """The driver's process has ended without an outcome: the answer to `Kill`, or a crash."""

    why: str = "the driver's process ended without an outcome"
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class SavepointCreated(RunReport):
    """The driver has created the savepoint."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class SavepointFailed(RunReport):
    """The driver could not create the savepoint."""

    name: str
    error: Failure


Event = Command | RunReport | ShutdownRequested | Submitted | FitsNow | DoesNotFit | TimerDue

COMMANDS: dict[str, type[Command]] = {
    "stop": StopRequested,
    "cancel": CancelRequested,
    "restart": RestartRequested,
    "rescale": RescaleRequested,
    "update": UpdateRequested,
    "savepoint": SavepointRequested,
    "delete": DeleteRequested,
}
KINDS = {event: kind for kind, event in COMMANDS.items()}


def command_event(kind: str, command: str, arguments: Mapping[str, Any] | None = None) -> Command:
    """Return the event of a stored command.

    >>> command_event("rescale", "c1", {"parallelism": 4})
    RescaleRequested(command='c1', parallelism=4)
    """
    if kind not in COMMANDS:
        message = f"unknown command {kind!r}"
        raise BadValue(message, node="command", hint=choices("commands", COMMANDS, kind))
    try:
        return COMMANDS[kind](command, **(arguments or {}))
    except TypeError as error:
        message = f"{kind}: wrong arguments {dict(arguments or {})}"
        raise BadValue(message, node="command", hint=str(error)) from None
