"""Every error a user can meet.

PenstockError                 .node .hint .transient, exit code
├── PipelineError      (2)    the pipeline is wrong; raised while it is built
│   ├── UnknownColumn, UnknownFunction, BadExpression, AggregateNotAllowed
│   ├── BadWindow, MissingEventTime, BadSchema, BadFunction, BadValue, BadProcess, BadState
│   ├── DuplicateName, MissingSink, DanglingBranch, UpdatingStream, BadJoin
│   └── NotSerializable, PaceRefused, OverloadRefused
├── SettingsError      (2)    where it runs is wrong
│   ├── UnknownSetting, MissingInput, MissingJava, BadEntry, MissingPart
│   └── UnknownTopic, UnknownGroup, BrokerRefused, CannotReplay
├── CheckpointError    (2)    the checkpoint does not fit
│   ├── CheckpointInUse, CheckpointMismatch, CheckpointDamaged
│   └── CheckpointMissing, CheckpointExists, LedgerAhead
└── RunError           (1)    the job failed while it ran
    ├── ExpressionFailed, FunctionFailed, RowRejected, BadEmit, BadTimer
    └── SourceFailed, SinkFailed, NoBroker, StoreFailed, DiskFull, PortTaken, SparkFailed
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


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
    """An aggregate stands where rows are handled one by one, or is missing where groups are."""


class BadWindow(PipelineError):
    """A window has an impossible size, slide, gap or offset."""


class MissingEventTime(PipelineError):
    """A node works on event time, and no event time was declared before it."""


class BadSchema(PipelineError):
    """A schema cannot be read, or two schemas do not fit."""


class BadFunction(PipelineError):
    """A Python function cannot be used where it was passed."""


class BadProcess(PipelineError):
    """A process function lacks a method, or declares something that cannot be."""


class BadState(PipelineError):
    """A state of a process function is declared or used wrongly."""


class BadValue(PipelineError):
    """An argument has a value that cannot be meant."""


class DuplicateName(PipelineError):
    """Two nodes that keep state, read or write have the same name."""


class MissingSink(PipelineError):
    """A pipeline without any output."""


class DanglingBranch(PipelineError):
    """A side output that its node does not have."""


class UpdatingStream(PipelineError):
    """A node that needs final rows follows one whose rows are updated later."""


class BadJoin(PipelineError):
    """A join with keys, times or columns that cannot come together."""


class NotSerializable(PipelineError):
    """A plan that holds Python functions cannot be written as JSON."""


class PaceRefused(PipelineError):
    """A node that the pipeline's pace cannot run."""


class OverloadRefused(PipelineError):
    """A source that cannot do what the pipeline should do under too much load."""


class SettingsError(PenstockError):
    """Where or how the pipeline runs is wrong; nothing was started."""

    exit_code = 2


class UnknownSetting(SettingsError):
    """A setting that does not exist, or a value it does not take."""


class MissingInput(SettingsError):
    """A file or folder to be read is not there."""


class MissingJava(SettingsError):
    """No Java 17 or newer was found."""


class BadEntry(SettingsError):
    """FILE.py[:name] does not lead to a pipeline."""


class MissingPart(SettingsError):
    """An optional part is not installed."""


class UnknownTopic(SettingsError):
    """The broker has no topic, or no partition, of that name."""


class UnknownGroup(SettingsError):
    """The broker has no consumer group of that name."""


class BrokerRefused(SettingsError):
    """The broker answered, and does not do what it was asked; nothing was changed."""


class CannotReplay(SettingsError):
    """Rejected rows cannot go back into the source that they came from."""


class CheckpointError(PenstockError):
    """The checkpoint does not fit; it was not touched."""

    exit_code = 2


class CheckpointInUse(CheckpointError):
    """Another driver holds the lease of this checkpoint."""


class CheckpointMismatch(CheckpointError):
    """The checkpoint belongs to another pipeline, or to another version of it."""


class CheckpointDamaged(CheckpointError):
    """A file of the checkpoint cannot be read."""


class CheckpointMissing(CheckpointError):
    """There is no checkpoint, savepoint, epoch or state of that name."""


class CheckpointExists(CheckpointError):
    """A checkpoint or savepoint is where a new one should be."""


class LedgerAhead(CheckpointError):
    """A sink has epochs that its checkpoint does not know, so new rows under their numbers would be lost."""


class RunError(PenstockError):
    """The job failed while it ran; it can be run again from its checkpoint."""


class ExpressionFailed(RunError):
    """A SQL expression failed on a row."""


class FunctionFailed(RunError):
    """A Python function raised."""


class BadResult(RunError):
    """A Python function returned a value that the declared type of its column cannot hold exactly."""


class BadEmit(RunError):
    """A process function gave something that is not a row of one of its outputs."""


class BadTimer(RunError):
    """A process function set a timer that can never be right."""


class RowRejected(RunError):
    """A row could not be read, and the source was told to fail on such rows."""


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
    """Spark failed in a way that is not known to be the user's."""


def choices(label: str, names: Iterable[str], wrong: str | None = None) -> str:
    """List the valid choices, and the one that was probably meant.

    >>> choices("columns here", ["price", "size"], "pirce")
    "columns here: price, size      did you mean 'price'?"
    """
    known = list(names)
    close = get_close_matches(wrong, known, n=1) if wrong else []
    meant = f"      did you mean '{close[0]}'?" if close else ""
    return f"{label}: {', '.join(known) or '(none)'}{meant}"
