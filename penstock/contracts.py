"""What a source and a sink promise; subclass one of these to add your own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.schema import Field, Schema

if TYPE_CHECKING:
    from penstock.folders import Folder
    from penstock.settings import Settings

Guarantee = Literal["exactly_once", "at_least_once", "at_most_once"]
OnError = Literal["reject", "fail"]
Offsets = Mapping[str, int | str]

WHY: dict[Guarantee, str] = {
    "exactly_once": "each epoch is staged, then shown once",
    "at_least_once": "an epoch that is replayed after a crash may be shown again",
    "at_most_once": "an epoch that was under way in a crash may be missing",
}
# The column that carries a sink's `row_key` beside the user's own.
ROW_KEY = "__penstock_key"
# The column that says of each row whether the sink's `row_removed` holds for it.
ROW_REMOVED = "__penstock_removed"

# The one schema of rejected rows; made of fields, for workers need it and should not load the SQL parser.
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
    """One epoch of one sink; `id` is the same whenever the epoch is replayed, and never used again.

    `bounds` identifies its input: a digest of the offsets up to which it reads each source. A ledger keeps it beside
    the number, so that a checkpoint that was put back from an older copy is noticed (`Sink.newest_epochs`).
    """

    lineage: str
    sink: str
    number: int
    bounds: str = ""

    @property
    def id(self) -> str:
        """All three as one string."""
        return f"{self.lineage}-{self.sink}-{self.number}"


@dataclass(frozen=True)
class Rejected:
    """One row that could not be read: why, its original bytes and where they stood.

    `row` is the row as JSON, of a source that gives no bytes but values.
    """

    reason: str
    raw: bytes
    position: str
    row: str | None = None

    def __repr__(self) -> str:
        row = "" if self.row is None else f", row={self.row!r}"
        return f"Rejected(reason={self.reason!r}, raw={self.raw!r}, position={self.position!r}{row})"


class Connector:
    """What sources and sinks share: two that are described alike are one."""

    name: str

    def spec(self) -> dict[str, Any] | None:
        """Return what rebuilds it from JSON; None if it holds Python that JSON cannot.

        Secrets do not belong in it. In plans, addresses in it and what is secret by its name are masked.
        """
        return None

    def hidden(self) -> object:
        """Return what `spec()` leaves out and yet makes a difference, such as an address with its password."""
        return None

    def under(self, folder: str) -> None:
        """Learn the folder that relative paths start from; called before `check`."""

    def within(self, job: str, settings: Settings) -> None:
        """Learn the job's name and where it runs; called before `check`."""

    def check(self) -> None:
        """Raise a SettingsError if it cannot be used; called before Spark starts."""

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, type(self)):
            return self is other
        return self.spec() is not None and (self.spec(), self.hidden()) == (other.spec(), other.hidden())

    def __hash__(self) -> int:
        spec = self.spec()
        return id(self) if spec is None else hash(repr(spec))


class Source(Connector):
    """Something that is read by offsets, so that the same rows can be read again after a crash.

    Guarantee: exactly once while `replayable`; else what was read and not yet written is lost in a crash.
    """

    schema: Schema
    replayable: bool = True
    # Whether `newest` can leave the oldest rows out, and whether `spills` makes a difference.
    can_drop: bool = False
    can_spill: bool = False
    spills: bool = False

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return how far one may read from `start`: at most about `max_rows` rows further."""
        raise NotImplementedError

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one partition, `start` excluded from what is before it, up to `end`."""
        raise NotImplementedError

    def commit(self, offsets: Offsets) -> None:
        """Every sink has the rows before these offsets; they will not be asked for again."""

    def warnings(self) -> list[str]:
        """Return what to report about the input since the last call; asked for on the driver, in every run."""
        return []

    def changed_inputs(self) -> int:
        """Return how many inputs, such as files, changed after they were found, over all runs of the checkpoint."""
        return 0

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Cut an epoch into the pieces that tasks read; one per partition unless overridden."""
        return [(part, start.get(part), end[part]) for part in end if start.get(part) != end[part]]

    def read_split(self, split: Any) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one piece."""
        return self.read(*split)

    @property
    def partitioned(self) -> bool:
        """Whether rows are in order by partition: then each partition has a watermark of its own."""
        return type(self).splits is Source.splits or type(self).parts is not Source.parts

    def partitions_of(self, offsets: Offsets) -> Sequence[str]:
        """Return the partitions that offsets are of."""
        return tuple(offsets)

    def parts(self, split: Any) -> Iterable[tuple[str, Any]]:
        """Cut a piece by partition: the partition of each part, and the part as a piece of its own."""
        return [(split[0] if self.partitioned else "", split)]

    def latest_of(self, start: Offsets, max_rows: int | None, only: Collection[str]) -> Offsets:
        """Return how far one may read if only these partitions are read; the others stay at `start`."""
        end = self.latest(start, max_rows)
        return {part: end[part] if part in only else start[part] for part in end if part in {*only, *start}}

    def behind(self, offsets: Offsets) -> int | None:
        """Return about how many rows are there after these offsets, if that can be told."""
        return None

    def newest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        """Return the offsets after which about `rows` rows are left, and how many are left out; if it `can_drop`."""
        raise NotImplementedError

    def ended(self, offsets: Offsets) -> bool:
        """Say whether nothing can ever come after these offsets."""
        return False

    def open(self, folder: Folder) -> None:
        """Remember a folder of the checkpoint where the source may keep notes of its own."""

    def begin(self) -> None:
        """Start what must run beside the job in the driver's process; called after `open`."""

    def finish(self) -> None:
        """End what `begin` started."""


class Sink(Connector):
    """Something that is written epoch by epoch, in two steps.

    `prepare` runs in a task and may run twice; its token says what it staged. `commit` runs in the driver
    with all tokens of an epoch and may run twice with the same `epoch.id`: the second time does nothing.

    `prepare` may rely on this: its batches end without an error only if all rows of the partition have arrived. If the
    task is lost before that, the iterator raises `InputCutShort`, which must not be caught: undo what was written, or
    leave it uncommitted, and let the error pass. So a sink that commits in `prepare` commits after the last batch.

    A sink whose `partitions` is a number keeps its ledger by partition: rows come in that many partitions, each row by
    its content always in the same one, and `prepare` writes rows and ledger in one transaction of its own, unless the
    ledger has the epoch. If it is `keyed` too, the rows of a key come in order: by source, partition and offset, or
    by event time if they come out of a stateful operator. `row_key` is SQL; its value comes with each row as bytes, in
    a further column `ROW_KEY`. `row_removed` is a condition in SQL; whether it holds comes with each row in
    `ROW_REMOVED`.
    """

    guarantee: Guarantee = "at_least_once"
    row_key: str | None = None
    row_removed: str | None = None
    updates: bool = False
    partitions: int | None = None
    # The columns by which it finds a row again: rows that agree in them come in one partition.
    key: tuple[str, ...] = ()

    @property
    def keyed(self) -> bool:
        """Whether rows of one key follow one another here, so that their order matters."""
        return self.row_key is not None or bool(self.key)

    @property
    def why(self) -> str:
        """How it keeps its guarantee, in a few words; `explain` prints it."""
        return WHY[self.guarantee]

    def goes_to(self) -> str:
        """Say where rows go, in a few words and without a password; `explain` prints it."""
        return ""

    def fits(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Raise a PipelineError if such rows can never be written here; called when the pipeline is built."""

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Learn what will be written; called in the driver before the first epoch."""

    def continues(self, lineage: str, sink: str) -> None:
        """Learn whose epochs come, by the name that the ledger has for them; called after `open`.

        Where the ledger has a number of partitions, that one goes into `partitions`.
        """

    def used_before(self, sink: str) -> bool:
        """Say whether the ledger has epochs of any lineage under this name, if that is cheap to tell; after `check`."""
        return False

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> Any:
        """Stage the rows of one partition and return a token that can be pickled."""
        raise NotImplementedError

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Show what was staged, all of it or nothing."""
        raise NotImplementedError

    def abort(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Forget what was staged."""

    def committed(self, epoch: Epoch) -> bool:
        """Say whether the ledger has this whole epoch already; asked in the driver."""
        return False

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str] | None:
        """Return the newest epoch in the ledger, of each partition if it is kept by partition, with its bounds.

        Asked once when a job starts, after `continues`: a ledger that has epochs which the checkpoint does not know
        stops the job. None if the ledger cannot tell; then `committed` is asked for the epoch that comes next.
        """
        return None
