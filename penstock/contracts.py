"""The contracts of sources and sinks; subclass `Source` or `Sink` to write a connector of your own.

docs/how-to/write-a-connector.md has a complete example of each. `penstock.testing.check_source` and `check_sink` test
an implementation against its contract.

A source is asked on the driver how far an epoch may read (`latest`), and in tasks for the rows of a range of offsets
(`splits`, `read_split`, by default `read`). A sink stages the rows of an epoch in tasks (`prepare`) and shows them on
the driver (`commit`). Only these methods have to be implemented; every other method has a default.

When a job starts, methods are called in this order:

    source: set_base_path, configure, check, open, initial, start_background, then latest, read and commit per epoch,
            stop_background
    sink:   validate (when the pipeline is built), set_base_path, configure, check, open, bind_lineage, newest_epochs,
            then committed, prepare and commit (or abort) per epoch

Connectors are pickled to reach the tasks. Open files and connections there, or drop them in `__getstate__`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import pyarrow as pa

from penstock.errors import BadValue, LedgerAhead
from penstock.schema import Field, Schema

if TYPE_CHECKING:
    from penstock.settings import Settings
    from penstock.storage.folders import Folder

Guarantee = Literal["exactly_once", "at_least_once", "at_most_once"]
OnError = Literal["reject", "fail"]
Offsets = Mapping[str, int | str]

WHY: dict[Guarantee, str] = {
    "exactly_once": "each epoch is staged, then shown once",
    "at_least_once": "an epoch that is replayed after a crash may be shown again",
    "at_most_once": "an epoch that was in progress in a crash may be missing",
}
# The column with the value of a sink's `row_key`, in addition to the user's columns.
ROW_KEY = "__penstock_key"
# The column with the value of a sink's `row_removed` condition.
ROW_REMOVED = "__penstock_removed"

# The schema of rejected rows. Built from fields: workers need it and should not load the SQL parser.
REJECTED = Schema(
    (
        *(Field(name, "string") for name in ("node", "reason", "row")),
        Field("raw", "binary"),
        *(Field(name, "string") for name in ("source", "position")),
        Field("epoch", "bigint"),
    )
)


@dataclass(frozen=True)
class Epoch:
    """One epoch of one sink; `id` is the same whenever the epoch is replayed.

    `bounds` identifies the input of the epoch: a digest of the offsets up to which it reads each source. A ledger
    stores it next to the number, so that a checkpoint restored from an older copy is detected (`Sink.newest_epochs`).

    A job never gives an id to other rows. Where it can ask the ledger (`committed`, `newest_epochs`), it stops before
    that; otherwise `by_input` is set, and the id contains the bounds.

    >>> Epoch("a1", "out", 7, "c0ffee").id, Epoch("a1", "out", 7, "c0ffee", by_input=True).id
    ('a1-out-7', 'a1-out-7-c0ffee')
    """

    lineage: str
    sink: str
    number: int
    bounds: str = ""
    by_input: bool = False

    @property
    def id(self) -> str:
        """Lineage, sink and number as one string, and the bounds if `by_input` is set."""
        named = f"{self.lineage}-{self.sink}-{self.number}"
        return f"{named}-{self.bounds}" if self.by_input and self.bounds else named


@dataclass(frozen=True)
class Rejected:
    """One row that could not be parsed: the reason, its original bytes and their position in the source.

    `row` is the row as JSON, for sources that read values instead of bytes.
    """

    reason: str
    raw: bytes
    position: str
    row: str | None = None

    def __repr__(self) -> str:
        row = "" if self.row is None else f", row={self.row!r}"
        return f"Rejected(reason={self.reason!r}, raw={self.raw!r}, position={self.position!r}{row})"


class Connector:
    """What sources and sinks share. Two connectors with the same `spec` and `private_spec` are equal."""

    # The default name of the node in plans, reports and metrics.
    name: str

    def spec(self) -> dict[str, Any] | None:
        """Return a JSON description from which the connector can be rebuilt; None if it holds Python objects.

        Leave secrets out. Plans mask URLs in it, and values whose names say that they are secret.
        """
        return None

    def private_spec(self) -> object:
        """Return what `spec` leaves out but distinguishes two connectors, such as a URL with its password."""
        return None

    def set_base_path(self, folder: str) -> None:
        """Receive the folder or URL that relative paths start from; called before `check`."""

    def configure(self, job: str, settings: Settings) -> None:
        """Receive the job's name and its settings, such as named connections; called before `check`."""

    def check(self) -> None:
        """Raise a SettingsError if the connector cannot be used, such as no permission; called before Spark starts."""

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, type(self)):
            return self is other
        return self.spec() is not None and (self.spec(), self.private_spec()) == (other.spec(), other.private_spec())

    def __hash__(self) -> int:
        spec = self.spec()
        return id(self) if spec is None else hash(repr(spec))


class Source(Connector):
    """Input that is read by offsets, so that the same rows can be read again after a crash.

    Offsets map each partition of the source to a position, an int or a string. They are stored in the checkpoint as
    JSON. The same two offsets must always give the same rows, also in another process.

    Guarantee: exactly once if `replayable`; otherwise rows that were read and not yet written are lost in a crash.

    To implement: `name`, `schema`, `latest` and `read`.
    """

    schema: Schema
    # Whether rows can be read again after a crash.
    replayable: bool = True
    # Whether `drop_oldest` is implemented (overload="drop").
    can_drop: bool = False
    # Whether the source buffers on disk when `spills` is set (overload="spill").
    can_spill: bool = False
    spills: bool = False
    # Whether `splits` gives the same splits in the same order whenever its arguments are the same, also in another
    # process and whatever input came or went since; `initial` must be stored then.
    repeats_splits: bool = False

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the offsets up to which the next epoch reads: at most about `max_rows` rows after `start`.

        Return `start` if there are no new rows. Partitions may appear; none may disappear.
        """
        raise NotImplementedError

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one partition between two offsets, as in `range(start, end)`; called in a task.

        `start` is None for a partition that `initial` did not have. Batches have the columns of `schema`. Yield a
        `Rejected` for a row that cannot be parsed.
        """
        raise NotImplementedError

    def commit(self, offsets: Offsets) -> None:
        """Every sink has committed the rows up to these offsets: they are not read again and may be deleted."""

    def warnings(self) -> list[str]:
        """Return warnings about the input since the last call, for the user; called on the driver."""
        return []

    def changed_inputs(self) -> int:
        """Return how many inputs, such as files, changed after they were found, over all runs of the checkpoint."""
        return 0

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Divide an epoch into splits, one per task; by default one per partition with new rows."""
        return [(part, start.get(part), end[part]) for part in end if start.get(part) != end[part]]

    def read_split(self, split: Any) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one split; called in a task."""
        return self.read(*split)

    def take_arrivals(self) -> Mapping[int, int]:
        """Return when the rows arrived that this task has read since the last call, if the source knows that.

        Keys are milliseconds since 1970, values how many rows came then; a sample is enough. End-to-end latencies are
        measured from these times to the commit.
        """
        return {}

    @property
    def partitioned(self) -> bool:
        """Whether rows are ordered within a partition: then each partition has a watermark of its own."""
        default = type(self).splits is Source.splits
        return default or type(self).splits_by_partition is not Source.splits_by_partition

    def partitions_of(self, offsets: Offsets) -> Sequence[str]:
        """Return the partitions that some offsets belong to."""
        return tuple(offsets)

    def splits_by_partition(self, split: Any) -> Iterable[tuple[str, Any]]:
        """Divide a split that spans partitions: each partition, and its part as a split of its own."""
        return [(split[0] if self.partitioned else "", split)]

    def latest_of(self, start: Offsets, max_rows: int | None, only: Collection[str]) -> Offsets:
        """Return `latest` for some partitions only; the others stay at `start`."""
        end = self.latest(start, max_rows)
        return {part: end[part] if part in only else start[part] for part in end if part in {*only, *start}}

    def lag(self, offsets: Offsets) -> int | None:
        """Return about how many rows there are after these offsets; None if that is unknown."""
        return None

    def partition_lags(self, offsets: Offsets) -> Mapping[str, int] | None:
        """Return the same by partition; None if it is known for the whole source only, or not at all."""
        return None

    def drop_oldest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        """Return offsets after which about `rows` rows are left, and how many rows are skipped; needs `can_drop`."""
        raise NotImplementedError

    def ended(self, offsets: Offsets) -> bool:
        """Return whether the input ends at these offsets; then `penstock run` can finish."""
        return False

    def open(self, folder: Folder) -> None:
        """Receive a folder of the checkpoint, in which the source may store metadata of its own."""

    def start_background(self) -> None:
        """Start background work of the source in the driver; called after `open`."""

    def stop_background(self) -> None:
        """Stop what `start_background` started."""


class Sink(Connector):
    """Output that is written epoch by epoch, in two phases.

    `prepare` stages the rows of one partition. It runs in a task and may run twice. `commit` runs on the driver with
    the tokens of all partitions. It may run twice with the same `epoch.id`: the second time must do nothing.

    The batches of `prepare` end without an error only if all rows of the partition have arrived. If the task is lost
    before that, the iterator raises `InputCutShort`. Do not catch it: undo what was written, or leave it uncommitted,
    and let the error propagate. A sink that commits in `prepare` does so after the last batch.

    If `partitions` is a number, the sink has a ledger per partition: rows are distributed over that many partitions by
    their content, always in the same way, and `prepare` writes rows and ledger entry in one transaction, unless the
    ledger already has the epoch. If it also `takes_splits`, the partitions of an epoch may be the splits of its source
    instead, which saves a shuffle: `prepare` then gets numbers that may be `partitions` or higher, and a replay has the
    same. A sink that is `keyed` never gets splits.

    If the sink is `keyed`, with `partitions` or without, the rows of one key arrive in one partition of an epoch, in
    order: by source, partition and offset, or by event time after a stateful operator; `explain` warns where
    `map_batches` ends the order. Without `partitions` their
    number is that of the cores, which may change from run to run. `row_key` is an SQL expression; its value comes with
    each row, as bytes in the column `ROW_KEY`. `row_removed` is an SQL condition; its value comes in the column
    `ROW_REMOVED`.

    To implement: `name`, `guarantee`, `prepare` and `commit`; for exactly once also `abort`, `committed` and
    `newest_epochs`.
    """

    guarantee: Guarantee = "at_least_once"
    row_key: str | None = None
    row_removed: str | None = None
    # Whether the sink accepts updates of rows that it has written.
    updates: bool = False
    partitions: int | None = None
    takes_splits: bool = False
    # The columns that identify a row in the target: rows that agree in them arrive in one partition.
    key: tuple[str, ...] = ()
    # Of a sink that follows a view: the columns by which it replaces and deletes rows.
    view_key: tuple[str, ...] = ()

    @property
    def keyed(self) -> bool:
        """Whether the order of rows with the same key matters."""
        return self.row_key is not None or bool(self.key)

    @property
    def guarantee_reason(self) -> str:
        """How the sink achieves its guarantee, in a few words; `explain` prints it."""
        return WHY[self.guarantee]

    def describe_target(self) -> str:
        """Return where rows are written, in a few words and without a password; `explain` prints it."""
        return ""

    def validate(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Raise a PipelineError if rows of this schema can never be written; called when the pipeline is built."""

    def for_view(self, unique: tuple[str, ...] | None, removed: str, *, whole: bool) -> Sink | None:
        """Return the sink that follows a view by upserts and deletes; None if it takes the changes as rows.

        `unique` are the columns that no two rows of the view have in common, if that is known; `removed` is an SQL
        condition for rows that are deleted. With `whole` the sink shows the whole view after each epoch. Raise a
        PipelineError if it can do neither.
        """
        if whole:
            message = f"{type(self).__name__} cannot show a whole view"
            raise BadValue(message, hint="whole=True is for files(); leave it out, and the sink gets the changes")
        return None

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Receive the schema of the rows; called on the driver before the first epoch."""

    def bind_lineage(self, lineage: str, sink: str) -> None:
        """Receive the lineage of the job and the sink's name in the ledger; called after `open`.

        A sink with a ledger per partition sets `partitions` to the number that the ledger already has, if any.
        """

    def used_before(self, sink: str) -> bool:
        """Return whether the ledger has epochs of any lineage under this name, if that is cheap; after `check`."""
        return False

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> Any:
        """Stage the rows of one partition and return a token that can be pickled; called in a task."""
        raise NotImplementedError

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Show what was staged, all or nothing; called on the driver."""
        raise NotImplementedError

    def abort(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Discard what was staged; called on the driver."""

    def committed(self, epoch: Epoch) -> bool:
        """Return whether the ledger already has this whole epoch; then it is not written again."""
        return False

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str] | None:
        """Return the newest epoch in the ledger with its bounds, one for each partition if `partitions` is set.

        Called once when a job starts, after `bind_lineage`: if the ledger has epochs that the checkpoint does not know,
        the job stops. Return None if the ledger does not know; then `committed` is called for each new epoch.
        """
        return None


def own_sink(sink: Sink) -> Sink:
    """Return the sink of one output: it is opened for the rows of that output, so several must not share an object.

    A user's sink without a `spec` stays what it is.
    """
    return sink if sink.spec() is None else copy.copy(sink)


def answers_committed(sink: Sink) -> bool:
    """Return whether a sink implements `committed`."""
    return getattr(sink.committed, "__func__", None) is not Sink.committed


def refuse_other_input(where: str, number: int, known: str, bounds: str) -> None:
    """Raise LedgerAhead if a ledger has this epoch with other bounds: it must not be taken for written."""
    if not same_input(known, bounds):
        message = f"{where}: its ledger has epoch {number} with other input than it has now"
        hint = "the checkpoint is an older copy, or its newest files are lost: run the job again, it says what to do"
        raise LedgerAhead(message, hint=hint)


def same_input(bounds: str, other: str) -> bool:
    """Return whether two digests may be of the same input: earlier versions stored the first half of it, or nothing.

    >>> same_input("c0ffee", "c0ffee00"), same_input("", "c0ffee"), same_input("c0ffee", "decaff00")
    (True, True, False)
    """
    return bounds.startswith(other) or other.startswith(bounds)


@runtime_checkable
class KafkaConnectable(Protocol):
    """A source or sink that Spark's own Kafka connector can read or write: a topic."""

    def connector_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka connector for this topic."""
