"""Every error a user can meet.

PenstockError                 .node .hint .transient, exit code
├── PipelineError      (2)    the pipeline is wrong; raised while it is built
│   ├── UnknownColumn, UnknownFunction, BadExpression, AggregateNotAllowed
│   ├── BadWindow, MissingEventTime, BadSchema, BadFunction, BadValue, BadProcess, BadState
│   ├── DuplicateName, MissingSink, DanglingBranch, UpdatingStream, BadJoin
│   └── NotSerializable, PaceRefused, OverloadRefused
├── SettingsError      (2)    the settings or the environment are wrong
│   ├── UnknownSetting, MissingInput, MissingJava, BadEntry, MissingPart
│   ├── UnknownTopic, UnknownGroup, BrokerRefused, CannotReplay
│   ├── UnknownJob, JobExists, AccessDenied, RequestRefused, MissingSecret
│   └── BadArchive, BadCursor, NewerStore
├── CheckpointError    (2)    the checkpoint cannot be used
│   ├── CheckpointInUse, CheckpointMismatch, CheckpointDamaged
│   └── CheckpointMissing, CheckpointExists, LedgerAhead
└── RunError           (1)    the job failed while it ran
    ├── ExpressionFailed, FunctionFailed, RowRejected, BadEmit, BadResult, BadTimer
    ├── SourceFailed, SinkFailed, NoBroker, StoreFailed, DiskFull, PortTaken, SparkFailed
    └── NoJobManager, JobFailed, StoreUnavailable, Fenced, FrameDamaged
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class PenstockError(Exception):
    """What went wrong, at which node, and what to do next."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        hint: str | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint
        self.transient = transient

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        after = f"\n  {self.hint}" if self.hint else ""
        return f"{where}{self.message}{after}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Spark's workers to the driver by pickle, which knows no keyword arguments.
        return (_rebuild, (type(self), self.message, self.node, self.hint, self.transient))


def _rebuild(
    kind: type[PenstockError], message: str, node: str | None, hint: str | None, transient: bool
) -> PenstockError:
    return kind(message, node=node, hint=hint, transient=transient)


class PipelineError(PenstockError):
    """The pipeline is wrong; nothing was started."""

    exit_code = 2


class UnknownColumn(PipelineError):
    """An expression names a column that its input does not have."""


class UnknownFunction(PipelineError):
    """An expression calls a function that Spark does not have."""


class BadExpression(PipelineError):
    """An expression is not Spark SQL."""


class AggregateNotAllowed(PipelineError):
    """An aggregate in an expression over single rows, or none in an expression over groups."""


class BadWindow(PipelineError):
    """A window has an impossible size, slide, gap or offset."""


class MissingEventTime(PipelineError):
    """A node needs event time, and none is declared upstream of it."""


class BadSchema(PipelineError):
    """A schema cannot be parsed, or two schemas do not match."""


class BadFunction(PipelineError):
    """A Python function cannot be used where it was passed."""


class BadProcess(PipelineError):
    """A process function lacks a method, or has an invalid declaration."""


class BadState(PipelineError):
    """A state of a process function is declared or used wrongly."""


class BadValue(PipelineError):
    """An argument has an invalid value."""


class DuplicateName(PipelineError):
    """Two sources, stateful nodes or sinks have the same name."""


class MissingSink(PipelineError):
    """A pipeline without any output."""


class DanglingBranch(PipelineError):
    """A side output that its node does not have."""


class UpdatingStream(PipelineError):
    """A node that needs final rows follows one whose rows are updated later."""


class BadJoin(PipelineError):
    """A join with incompatible keys, times or columns."""


class NotSerializable(PipelineError):
    """A plan that holds Python functions cannot be written as JSON."""


class PaceRefused(PipelineError):
    """A node that cannot run at the pipeline's pace."""


class OverloadRefused(PipelineError):
    """A source that does not support the pipeline's overload policy."""


class SettingsError(PenstockError):
    """The settings or the environment are wrong; nothing was started."""

    exit_code = 2


class UnknownSetting(SettingsError):
    """An unknown setting, or an invalid value of one."""


class MissingInput(SettingsError):
    """A file or folder to be read does not exist."""


class MissingJava(SettingsError):
    """No Java 17 or newer was found."""


class BadEntry(SettingsError):
    """FILE.py[:name] has no such pipeline."""


class MissingPart(SettingsError):
    """An optional dependency is not installed."""


class UnknownTopic(SettingsError):
    """The broker does not have this topic or partition."""


class UnknownGroup(SettingsError):
    """The broker does not have this consumer group."""


class BrokerRefused(SettingsError):
    """The broker refused the request; nothing was changed."""


class CannotReplay(SettingsError):
    """Rejected rows cannot go back into the source that they came from."""


class UnknownJob(SettingsError):
    """The job manager does not have this job, or several match."""


class AccessDenied(SettingsError):
    """The job manager requires a token, or one with another role."""


class RequestRefused(SettingsError):
    """The job manager refused the request; nothing was changed."""


class JobExists(SettingsError):
    """Another job of the job manager has this name."""


class NewerStore(SettingsError):
    """The store of the job manager was written by a newer version of Penstock."""


class BadCursor(SettingsError):
    """A cursor that no list of the job manager returned."""


class BadArchive(SettingsError):
    """A zip file that is damaged, too large, or would write outside of its folder."""


class MissingSecret(SettingsError):
    """A secret that is referred to cannot be found, or others may read its file."""


class CheckpointError(PenstockError):
    """The checkpoint cannot be used; it was not changed."""

    exit_code = 2


class CheckpointInUse(CheckpointError):
    """Another driver holds the lease of this checkpoint."""


class CheckpointMismatch(CheckpointError):
    """The checkpoint belongs to another pipeline, or to another version of it."""


class CheckpointDamaged(CheckpointError):
    """A file of the checkpoint cannot be read."""


class CheckpointMissing(CheckpointError):
    """A checkpoint, savepoint, epoch or state does not exist."""


class CheckpointExists(CheckpointError):
    """A checkpoint or savepoint exists already at the path of a new one."""


class LedgerAhead(CheckpointError):
    """A sink's ledger has epochs that its checkpoint has not, so new rows with their numbers would be lost."""


class RunError(PenstockError):
    """The job failed while it ran; it can be run again from its checkpoint."""


class ExpressionFailed(RunError):
    """A SQL expression failed on a row."""


class FunctionFailed(RunError):
    """A Python function raised."""


class BadResult(RunError):
    """A Python function returned a value that the declared type of its column cannot hold exactly."""


class BadEmit(RunError):
    """A process function emitted something that is not a row of one of its outputs."""


class BadTimer(RunError):
    """A process function set an invalid timer."""


class RowRejected(RunError):
    """A row could not be read, and the source has on_error="fail"."""


class SourceFailed(RunError):
    """A source could not be read."""


class SinkFailed(RunError):
    """A sink could not be written."""


class NoBroker(RunError):
    """No broker answers at the address that was given."""


class StoreFailed(RunError):
    """The store of a checkpoint or savepoint does not answer, or refuses."""


class DiskFull(RunError):
    """No space is left where the job writes."""


class PortTaken(RunError):
    """A port is in use by another process."""


class SparkFailed(RunError):
    """Spark failed, and not because of the user's code or data."""


class NoJobManager(RunError):
    """No job manager answers at the address that was given."""


class JobFailed(RunError):
    """A job of the job manager failed, or a command to it did."""


class StoreUnavailable(RunError):
    """The database of the job manager does not answer."""


class Fenced(RunError):
    """Another job manager has taken over; this one may not write any more."""


class FrameDamaged(RunError):
    """An encoded Z-set or batch of deltas whose bytes are not what was written."""


def choices(label: str, names: Iterable[str], wrong: str | None = None) -> str:
    """List the valid choices, and the one that was probably meant.

    >>> choices("columns here", ["price", "size"], "pirce")
    "columns here: price, size      did you mean 'price'?"
    """
    known = list(names)
    close = get_close_matches(wrong, known, n=1) if wrong else []
    meant = f"      did you mean '{close[0]}'?" if close else ""
    return f"{label}: {', '.join(known) or '(none)'}{meant}"


def one_of(value: Any, valid: Iterable[Any], option: str, node: str | None = None) -> Any:
    """Return the value of an option; refuse one that is not valid.

    >>> one_of("fail", ("reject", "fail"), "on_error")
    'fail'
    """
    known = tuple(valid)
    if value not in known:
        message = f"{option}={value!r} is not known"
        raise BadValue(message, node=node, hint=choices(option, [one for one in known if one], str(value)))
    return value


def whole_number(least: int, node: str, values: Mapping[str, Any]) -> None:
    """Refuse values that are not integers, or less than the least."""
    for option, value in values.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            message = f"{option}={value!r} is not a whole number"
            raise BadValue(message, node=node, hint=f"pass {option}={least} or more")
        if value is not None and value < least:
            message = f"{option}={value} is less than {least}"
            raise BadValue(message, node=node, hint=f"pass {option}={least} or more")
