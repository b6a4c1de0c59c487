"""Topics as a source."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.connectors.formats.parsers import OnError, enforce
from penstock.connectors.topics.arrivals import Arrivals
from penstock.connectors.topics.client_errors import check_address, resolve
from penstock.connectors.topics.cluster import Cluster, fetch_end_offsets, fetch_topic_metadata, missing_topic
from penstock.connectors.topics.fetch import commit, fetch
from penstock.connectors.topics.offsets import (
    OutOfRange,
    Range,
    TopicMetadata,
    clipped,
    cut,
    partitions,
    planned_ranges,
    ranges,
    share_rows,
)
from penstock.connectors.topics.partition_reader import FetchRange
from penstock.connectors.topics.payloads import Payloads, row_schema
from penstock.connectors.topics.record_batches import Damaged
from penstock.contracts import Offsets, Rejected, Source
from penstock.durations import Time, instant
from penstock.errors import BadValue, PenstockError, SourceFailed, UnknownTopic, one_of
from penstock.masking import masked
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.storage.folders import Folder
from penstock.storage.folders import folder as to_folder

if TYPE_CHECKING:
    from typing import Self

METADATA_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ON_LOSS = ("fail", "continue")
_log = logging.getLogger(__name__)


class TopicSource(Source):
    """A topic of Penstock's log or of Kafka; records of open or aborted transactions are left out.

    Guarantee: exactly once. Offsets are stored in the checkpoint; progress is also committed to the group
    `penstock-<job>`, so that any Kafka tool shows the lag. Partitions that are added later are read from their
    beginning. Records that were deleted before they were read stop the job; with `on_loss="continue"` they count as
    rejected.
    """

    can_drop = repeats_splits = True

    def __init__(
        self,
        name: str,
        schema: Schema | None = None,
        format: str = "json",
        *,
        start: Time = "earliest",
        include: Sequence[str] = (),
        on_loss: str = "fail",
        on_error: str = "reject",
        connection: str = "log",
    ) -> None:
        self.name = topic_name(name)
        self.format, self.include = format, tuple(include)
        self.schema = row_schema(name, schema, format, self.include)
        self.start = str(start) if start in ("earliest", "latest") else instant(start, "start").isoformat()
        self.on_loss: str = one_of(on_loss, _ON_LOSS, "on_loss", f"read_topic '{name}'")
        # Not `on_error`: the scan would apply it to lost offsets too.
        self._on_error: OnError = one_of(on_error, get_args(OnError), "on_error", f"read_topic '{name}'")
        check_address(connection, f"read_topic '{name}'")
        self._connection = connection
        self._group = "penstock"
        self._cluster: Cluster | None = None
        self._folder: Folder | None = None
        self._cached: tuple[float, TopicMetadata] | None = None
        self._arrivals = Arrivals()

    def spec(self) -> dict[str, Any]:
        """Return the JSON description, without passwords."""
        own = Schema(self.schema.fields[: len(self.schema) - len(self.include)])
        return {
            "kind": "topic",
            "name": self.name,
            "schema": own.ddl,
            "format": self.format,
            "start": self.start,
            "include": list(self.include),
            "on_loss": self.on_loss,
            "on_error": self._on_error,
            "connection": masked(self._connection),
        }

    def private_spec(self) -> object:
        """Return the connection as given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        options = {name: spec[name] for name in ("start", "include", "on_loss", "on_error", "connection")}
        return cls(spec["name"], Schema(spec["schema"]), spec["format"], **options)

    def configure(self, job: str, settings: Settings) -> None:
        """Resolve the connection, and name the group that progress is committed to."""
        self._group = f"penstock-{job}"
        self._cluster = Cluster(resolve(self._connection, settings))

    def check(self) -> None:
        """Raise a SettingsError if the broker cannot be reached or the topic does not exist."""
        self.cluster.connection.refuse_unreachable()
        if self.cluster.describe(self.name) is None:
            raise missing_topic(self.name, self.cluster, UnknownTopic)

    def open(self, folder: str | Folder) -> None:
        """Use this folder to store the offsets at which the first run started."""
        self._folder = to_folder(folder)

    def initial(self) -> Offsets:
        """Return the offsets at which the first run starts; they are stored, and used until an epoch is committed."""
        stored = self._folder.read("start.json") if self._folder else None
        if stored is not None:
            found: Offsets = json.loads(stored)
            return found
        begin = self._start_offsets()
        if self._folder:
            self._folder.write("start.json", json.dumps(begin).encode())
        return begin

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the end offsets of the next epoch; raises if records are lost, unless on_loss="continue"."""
        return self.latest_of(start, max_rows)

    def latest_of(self, start: Offsets, max_rows: int | None, only: Collection[str] | None = None) -> Offsets:
        """Return end offsets with rows shared among some partitions; one that lost records is always included."""
        if self._is_idle(start):
            return start
        metadata = self._fetch_metadata()
        if metadata is None:
            return self._gone(start)
        whole = self._unless_lost(ranges(start, metadata.offsets(metadata.ends), metadata))
        read = [one for one in whole if only is None or one.lost or str(one.partition) in only]
        waits = {one.partition: one.first for one in whole if one not in read}
        return metadata.offsets(metadata.ends | waits | share_rows(read, max_rows))

    def partitions_of(self, offsets: Offsets) -> Sequence[str]:
        """Return the partitions of offsets, which also contain the topic's id."""
        return [str(part) for part in partitions(offsets)]

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[tuple[Range, ...]]:
        """Divide an epoch into splits of the same size."""
        metadata = self._recent_metadata()
        # Mostly `latest` fetched it milliseconds ago; if records are deleted in between, the task notices.
        if metadata is None or not metadata.reaches(end):
            metadata = self._fetch_metadata()
        if metadata is None:
            self._gone(start)
            metadata = TopicMetadata("deleted", {}, {})
        # What is lost by now must not move the edges: in a replay a sink may have some of these splits already.
        there = self._unless_lost(ranges(start, end, metadata))
        return clipped(cut(planned_ranges(start, end), parallelism), there)

    def read_split(self, split: Sequence[Range]) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one split."""
        for part in split:
            yield from self._rows(part)

    def splits_by_partition(self, split: Sequence[Range]) -> list[tuple[str, tuple[Range, ...]]]:
        """Divide a split by partition."""
        return [(str(one.partition), (one,)) for one in split]

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range of one partition."""
        return self._rows(Range(int(partition), int(start or 0), int(end)))

    def take_arrivals(self) -> Mapping[int, int]:
        """Return a sample of the timestamps of the records: when they were produced, or appended to the topic."""
        return self._arrivals.take()

    def connector_options(self) -> dict[str, str]:
        """Return the options with which Spark's own Kafka connector reads the same records."""
        begin = self.initial()
        starts = {str(part): begin[str(part)] for part in partitions(begin)}
        return {
            "subscribe": self.name,
            "startingOffsets": json.dumps({self.name: starts}),
            "failOnDataLoss": str(self.on_loss == "fail").lower(),
            "includeHeaders": str("headers" in self.include).lower(),
            "kafka.isolation.level": "read_committed",
            **self.cluster.connection.java_config(),
        }

    def rows(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of fetched records."""
        return enforce(self.payloads.rows(records), self._on_error, self.name)

    def commit(self, offsets: Offsets) -> None:
        """Commit progress to the job's group; only tools read it, so a failure does not stop the job."""
        committed = [TopicPartition(self.name, part, int(offsets[str(part)])) for part in partitions(offsets)]
        try:
            commit(self.cluster.connection, self._group, committed)
        except KafkaException as error:
            cause = error.args[0]
            # A deleted topic is reported when the next epoch is planned.
            if cause.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                _log.warning("%s: progress was not committed to group %s: %s", self.name, self._group, cause.str())

    def lag(self, offsets: Offsets) -> int:
        """Return how many records there are after these offsets."""
        return sum(self.partition_lags(offsets).values())

    def partition_lags(self, offsets: Offsets) -> dict[str, int]:
        """Return how many records each partition has after these offsets."""
        begin = offsets or self.initial()
        return {str(part): max(0, end - int(begin.get(str(part), 0))) for part, end in self._ends().items()}

    def drop_oldest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        """Return the offsets of the newest records, with a share of each partition, and how many are skipped."""
        metadata = self._fetch_metadata()
        whole = self._unless_lost(ranges(start, metadata.offsets(metadata.ends), metadata)) if metadata else []
        total = sum(one.last - one.first for one in whole)
        if metadata is None or total <= rows:
            return start, 0
        upto = share_rows(whole, total - rows)
        left_out = sum(upto[one.partition] - one.first for one in whole)
        return metadata.offsets(metadata.ends | upto), left_out

    def ended(self, offsets: Offsets) -> bool:
        """Return whether all current records were read; a missing topic may come back, so it has no end."""
        ends = self._ends() if offsets else {}
        return bool(ends) and all(end <= int(offsets.get(str(part), 0)) for part, end in ends.items())

    @property
    def cluster(self) -> Cluster:
        """The cluster, by the settings of the job or else of this folder."""
        if self._cluster is None:
            self._cluster = Cluster(resolve(self._connection, Settings.load()))
        return self._cluster

    @cached_property
    def payloads(self) -> Payloads:
        """The parser of record payloads."""
        return Payloads(self.name, self.schema, self.format, self.include)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "payloads"} | {"_cached": None}

    def _start_offsets(self) -> Offsets:
        metadata = self._fetch_metadata()
        if metadata is None:
            raise missing_topic(self.name, self.cluster)
        if self.start == "earliest":
            return metadata.offsets(metadata.starts)
        if self.start == "latest":
            return metadata.offsets(metadata.ends)
        millis = round(datetime.fromisoformat(self.start).timestamp() * 1000)
        return metadata.offsets(self.cluster.at(self.name, metadata.ends, millis))

    def _fetch_metadata(self) -> TopicMetadata | None:
        """Return the topic's current metadata, or None if it does not exist."""
        metadata = fetch_topic_metadata(self.cluster, self.name)
        self._cached = (time.monotonic(), metadata) if metadata else None
        return metadata

    def _ends(self) -> dict[int, int]:
        if seen := self._recent_metadata():
            return fetch_end_offsets(self.cluster, self.name, seen)
        metadata = self._fetch_metadata()
        return metadata.ends if metadata else {}

    def _recent_metadata(self) -> TopicMetadata | None:
        """Return metadata that is less than a second old."""
        if self._cached is None or time.monotonic() - self._cached[0] > METADATA_SECONDS:
            return None
        return self._cached[1]

    def _is_idle(self, start: Offsets) -> bool:
        """Return whether there are no new records, at the cost of one request, if metadata is recent."""
        metadata = self._recent_metadata()
        if metadata is None:
            return False
        with contextlib.suppress(PenstockError):
            return metadata.offsets(fetch_end_offsets(self.cluster, self.name, metadata)) == start
        return False

    def _gone(self, start: Offsets) -> Offsets:
        """Raise, or wait until a deleted topic is recreated."""
        if self.on_loss == "fail":
            lost = ", ".join(f"{start[str(part)]} of partition {part}" for part in partitions(start))
            message = f"topic '{self.name}' was deleted while the job ran: its rows from offset {lost} on are lost"
            raise SourceFailed(message, hint=_RECREATED)
        return start

    def _unless_lost(self, whole: list[Range]) -> list[Range]:
        lost = [f"{self.name}/{one.partition}: {one.lost}" for one in whole if one.lost]
        if lost and self.on_loss == "fail":
            raise SourceFailed("; ".join(lost), hint=_GO_ON)
        return whole

    def _rows(self, part: Range) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range; lost offsets appear as one rejected row."""
        if part.lost:
            yield from self._lost(part, part.first)
        at = part.first
        while at < part.last:
            try:
                for records in self._fetched(part.partition, at, part.last):
                    self._arrivals.add(records.column("timestamp"))
                    yield from self.rows(records)
                    at = records.column("offset")[-1].as_py() + 1
                return
            except OutOfRange:
                rest = self._remaining(part._replace(first=at, lost=""))
                yield from self._lost(rest, at)
                part, at = rest, rest.first
            except Damaged as damaged:
                at = max(at, damaged.first)
                yield self._broken(part.partition, at, min(damaged.next, part.last), damaged.why)
                at = max(at + 1, damaged.next)

    def _lost(self, rest: Range, at: int) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield what stands for offsets that are lost before a range."""
        yield Rejected(rest.lost, b"", f"{self.name}/{rest.partition}@{at}")

    def _fetched(self, partition: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys(("offset", "value", "partition", "timestamp", *self.include)))
        wanted = FetchRange(self.name, partition, first, last)
        return fetch(self.cluster.connection, self._group, wanted, columns)

    def _broken(self, partition: int, first: int, next: int, why: str) -> Rejected:
        """Raise at a damaged batch, or count it as one rejected row."""
        where = f"{self.name}/{partition}@{first}"
        reason = f"offsets {first} to {next - 1} are in a damaged batch: {why}"
        if self.on_loss == "fail":
            message = f"{where}: {reason}"
            raise SourceFailed(message, hint=_CORRUPT)
        return Rejected(reason, b"", where)

    def _remaining(self, part: Range) -> Range:
        """Return what is left of a range after records were deleted."""
        name = str(part.partition)
        metadata = self._fetch_metadata() or TopicMetadata("", {}, {})
        (rest,) = self._unless_lost(ranges({name: part.first}, {name: part.last}, metadata)) or [part]
        if not rest.lost:
            message = (
                f"{self.name}/{name}: the broker does not return offset {part.first}, although its metadata has it"
            )
            raise SourceFailed(message, hint="run the job again", transient=True)
        return rest


_GO_ON = (
    'to continue without it: read_topic(..., on_loss="continue"); to read all that is there: a new --checkpoint folder'
)
_CORRUPT = (
    "if the error persists, the log itself is damaged: restore its files, or use "
    'read_topic(..., on_loss="continue") to continue without the batch'
)
_RECREATED = 'a recreated topic needs a new --checkpoint folder, or read_topic(..., on_loss="continue")'


def topic_name(name: str) -> str:
    """Return a topic's name if it is valid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        message = f"{name!r} cannot be a topic's name"
        raise BadValue(message, node="topic", hint="use letters, digits, '-', '_' and '.', at most 249")
    return name
