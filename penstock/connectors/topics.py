"""Topics as a source."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.connectors.cluster import Cluster, missing
from penstock.connectors.fetch import commit, fetch
from penstock.connectors.kafka import check_address, resolve
from penstock.connectors.looks import ends_of, look_at
from penstock.connectors.offsets import Look, OutOfRange, Range, cut, partitions, ranges, shared_out
from penstock.connectors.payloads import Payloads, declared_rows
from penstock.connectors.records.batches import Damaged
from penstock.connectors.records.reader import Place
from penstock.connectors.rejects import checked_on_error, enforce
from penstock.contracts import Offsets, Rejected, Source
from penstock.durations import Time, instant
from penstock.errors import BadValue, PenstockError, SourceFailed, UnknownTopic, choices
from penstock.folders import Folder
from penstock.folders import folder as to_folder
from penstock.masking import masked
from penstock.schema import Schema
from penstock.settings import Settings

if TYPE_CHECKING:
    from typing import Self

LOOK_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ON_LOSS = ("fail", "continue")
_log = logging.getLogger(__name__)


class TopicSource(Source):
    """A topic of Penstock's log or of Kafka; records of open or aborted transactions are left out.

    Guarantee: exactly once. Offsets are kept in the checkpoint; progress is also committed to the group
    `penstock-<job>`, so that any Kafka tool shows the lag. Partitions that are added later are read from their
    beginning. What was removed before it was read stops the job, or with `on_loss="continue"` is counted as rejected.
    """

    can_drop = True

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
        self.schema = declared_rows(name, schema, format, self.include)
        self.start = str(start) if start in ("earliest", "latest") else instant(start, "start").isoformat()
        if on_loss not in _ON_LOSS:
            message = f"on_loss={on_loss!r} is not known"
            raise BadValue(message, node=f"read_topic '{name}'", hint=choices("on_loss", _ON_LOSS, on_loss))
        self.on_loss = on_loss
        # Not `on_error`: the scan would apply it to lost offsets too.
        self._on_error = checked_on_error(on_error)
        check_address(connection, f"read_topic '{name}'")
        self._connection = connection
        self._group = "penstock"
        self._cluster: Cluster | None = None
        self._folder: Folder | None = None
        self._looked: tuple[float, Look] | None = None

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON; passwords are left out."""
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

    def hidden(self) -> object:
        """Return the connection as it was given."""
        return self._connection

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Self:
        """Rebuild it from `spec()`."""
        options = {name: spec[name] for name in ("start", "include", "on_loss", "on_error", "connection")}
        return cls(spec["name"], Schema(spec["schema"]), spec["format"], **options)

    def within(self, job: str, settings: Settings) -> None:
        """Learn where the log is, and under which name progress is committed."""
        self._group = f"penstock-{job}"
        self._cluster = Cluster(resolve(self._connection, settings))

    def check(self) -> None:
        """Raise a SettingsError if the log cannot be reached or has no such topic."""
        self.cluster.connection.refuse_unreachable()
        if self.cluster.describe(self.name) is None:
            raise missing(self.name, self.cluster, UnknownTopic)

    def open(self, folder: str | Folder) -> None:
        """Keep in this folder where the first run began."""
        self._folder = to_folder(folder)

    def initial(self) -> Offsets:
        """Return where the first run begins; later runs begin there too, until an epoch is done."""
        noted = self._folder.read("start.json") if self._folder else None
        if noted is not None:
            found: Offsets = json.loads(noted)
            return found
        begin = self._begin()
        if self._folder:
            self._folder.write("start.json", json.dumps(begin).encode())
        return begin

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return how far one may read; raises if something is lost, unless the user chose to go on."""
        return self.latest_of(start, max_rows)

    def latest_of(self, start: Offsets, max_rows: int | None, only: Collection[str] | None = None) -> Offsets:
        """Share the rows out among some partitions; one that lost rows does not wait, so that the loss is counted."""
        if self._is_idle(start):
            return start
        look = self._look()
        if look is None:
            return self._gone(start)
        whole = self._unless_lost(ranges(start, look.offsets(look.ends), look))
        read = [one for one in whole if only is None or one.lost or str(one.partition) in only]
        waits = {one.partition: one.first for one in whole if one not in read}
        return look.offsets(look.ends | waits | shared_out(read, max_rows))

    def partitions_of(self, offsets: Offsets) -> Sequence[str]:
        """Return the partitions that offsets are of; they also hold which topic it is."""
        return [str(part) for part in partitions(offsets)]

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[tuple[Range, ...]]:
        """Cut an epoch into pieces of the same size."""
        look = self._looked_just_now()
        # Mostly `latest` looked milliseconds ago; what is lost in between, the task notices.
        if look is None or not look.reaches(end):
            look = self._look()
        if look is None:
            self._gone(start)
            look = Look("deleted", {}, {})
        return cut(self._unless_lost(ranges(start, end, look)), parallelism)

    def read_split(self, split: Sequence[Range]) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one piece."""
        for part in split:
            yield from self._rows(part)

    def parts(self, split: Sequence[Range]) -> list[tuple[str, tuple[Range, ...]]]:
        """Cut a piece by partition."""
        return [(str(one.partition), (one,)) for one in split]

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range of one partition."""
        return self._rows(Range(int(partition), int(start or 0), int(end)))

    def connector_options(self) -> dict[str, str]:
        """Return the options by which Spark's own Kafka connector reads the same records."""
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
        """Commit progress to the job's group; it is for tools to see, so a failure does not stop the job."""
        places = [TopicPartition(self.name, part, int(offsets[str(part)])) for part in partitions(offsets)]
        try:
            commit(self.cluster.connection, self._group, places)
        except KafkaException as error:
            cause = error.args[0]
            # That the topic was deleted is said where the next epoch looks for it.
            if cause.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                _log.warning("%s: progress was not committed to group %s: %s", self.name, self._group, cause.str())

    def behind(self, offsets: Offsets) -> int:
        """Return how many records are there after these offsets."""
        ends = self._ends()
        begin = offsets or self.initial()
        return sum(max(0, end - int(begin.get(str(part), 0))) for part, end in ends.items())

    def newest(self, start: Offsets, rows: int) -> tuple[Offsets, int]:
        """Return where the newest records begin, each partition giving its share, and how many are left out."""
        look = self._look()
        whole = self._unless_lost(ranges(start, look.offsets(look.ends), look)) if look else []
        total = sum(one.last - one.first for one in whole)
        if look is None or total <= rows:
            return start, 0
        upto = shared_out(whole, total - rows)
        left_out = sum(upto[one.partition] - one.first for one in whole)
        return look.offsets(look.ends | upto), left_out

    def ended(self, offsets: Offsets) -> bool:
        """Say whether all that is there now was read; a topic that is not there may come back, so it has no end."""
        ends = self._ends() if offsets else {}
        return bool(ends) and all(end <= int(offsets.get(str(part), 0)) for part, end in ends.items())

    @property
    def cluster(self) -> Cluster:
        """The cluster, found by the settings of this place unless a job told where it is."""
        if self._cluster is None:
            self._cluster = Cluster(resolve(self._connection, Settings.load()))
        return self._cluster

    @cached_property
    def payloads(self) -> Payloads:
        """What makes rows of records."""
        return Payloads(self.name, self.schema, self.format, self.include)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "payloads"} | {"_looked": None}

    def _begin(self) -> Offsets:
        look = self._look()
        if look is None:
            raise missing(self.name, self.cluster)
        if self.start == "earliest":
            return look.offsets(look.starts)
        if self.start == "latest":
            return look.offsets(look.ends)
        millis = round(datetime.fromisoformat(self.start).timestamp() * 1000)
        return look.offsets(self.cluster.at(self.name, look.ends, millis))

    def _look(self) -> Look | None:
        """Return the topic as it is now, or None if it is not there."""
        look = look_at(self.cluster, self.name)
        self._looked = (time.monotonic(), look) if look else None
        return look

    def _ends(self) -> dict[int, int]:
        if seen := self._looked_just_now():
            return ends_of(self.cluster, self.name, seen)
        look = self._look()
        return look.ends if look else {}

    def _looked_just_now(self) -> Look | None:
        """Return what was seen less than a second ago."""
        if self._looked is None or time.monotonic() - self._looked[0] > LOOK_SECONDS:
            return None
        return self._looked[1]

    def _is_idle(self, start: Offsets) -> bool:
        """Say cheaply that nothing is new, having looked thoroughly less than a second ago."""
        look = self._looked_just_now()
        if look is None:
            return False
        with contextlib.suppress(PenstockError):
            return look.offsets(ends_of(self.cluster, self.name, look)) == start
        return False

    def _gone(self, start: Offsets) -> Offsets:
        """Stop, or wait for a topic that was deleted to be made anew."""
        if self.on_loss == "fail":
            places = ", ".join(f"{start[str(part)]} of partition {part}" for part in partitions(start))
            message = f"topic '{self.name}' was deleted while the job ran: its rows from offset {places} on are gone"
            raise SourceFailed(message, hint=_ANEW)
        return start

    def _unless_lost(self, whole: list[Range]) -> list[Range]:
        lost = [f"{self.name}/{one.partition}: {one.lost}" for one in whole if one.lost]
        if lost and self.on_loss == "fail":
            raise SourceFailed("; ".join(lost), hint=_GO_ON)
        return whole

    def _rows(self, part: Range) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range; what is lost of it shows as one rejected row."""
        if part.lost:
            yield Rejected(part.lost, b"", f"{self.name}/{part.partition}@{part.first}")
        at = part.first
        while at < part.last:
            try:
                for records in self._fetched(part.partition, at, part.last):
                    yield from self.rows(records)
                    at = records.column("offset")[-1].as_py() + 1
                return
            except OutOfRange:
                rest = self._looked_again(part._replace(first=at, lost=""))
                yield Rejected(rest.lost, b"", f"{self.name}/{part.partition}@{at}")
                part, at = rest, rest.first
            except Damaged as damaged:
                at = max(at, damaged.first)
                yield self._broken(part.partition, at, min(damaged.next, part.last), damaged.why)
                at = max(at + 1, damaged.next)

    def _fetched(self, partition: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys(("offset", "value", "partition", *self.include)))
        place = Place(self.name, partition, first, last)
        return fetch(self.cluster.connection, self._group, place, columns)

    def _broken(self, partition: int, first: int, next: int, why: str) -> Rejected:
        """Stop at a damaged batch, or count it as one rejected row."""
        where = f"{self.name}/{partition}@{first}"
        reason = f"offsets {first} to {next - 1} are in a damaged batch: {why}"
        if self.on_loss == "fail":
            message = f"{where}: {reason}"
            raise SourceFailed(message, hint=_MEND)
        return Rejected(reason, b"", where)

    def _looked_again(self, part: Range) -> Range:
        """Return what is left of a range that the log no longer has whole."""
        name = str(part.partition)
        look = self._look() or Look("", {}, {})
        (rest,) = self._unless_lost(ranges({name: part.first}, {name: part.last}, look)) or [part]
        if not rest.lost:
            message = f"{self.name}/{name}: the log does not give offset {part.first}, which it says it has"
            raise SourceFailed(message, hint="run the job again", transient=True)
        return rest


_GO_ON = (
    'to go on without it: read_topic(..., on_loss="continue"); to read all that is there: a new --checkpoint folder'
)
_MEND = (
    "if it stays when the job is run again, it is damaged in the log: bring back the log's files, or "
    'read_topic(..., on_loss="continue") to go on without the batch'
)
_ANEW = 'a topic that is made anew needs a new --checkpoint folder, or read_topic(..., on_loss="continue")'


def topic_name(name: str) -> str:
    """Return a topic's name, if it can be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        message = f"{name!r} cannot be a topic's name"
        raise BadValue(message, node="topic", hint="use letters, digits, '-', '_' and '.', at most 249")
    return name
