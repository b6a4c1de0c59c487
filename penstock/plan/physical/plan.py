"""The physical plan as a value: frozen, comparable, and the same as JSON.

`penstock explain FILE --format json` prints it, a checkpoint stores it as `plan.json`, and explain, the compiler, the
runners, the job manager and the dashboard read it. Each class below is a JSON object with these fields; a tuple is an
array. Nodes refer to each other by `id`, which is unique in a plan and stable between runs: `source NAME`, `sink NAME`,
or the name of an operator. Durations are whole microseconds. A field that does not apply is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.errors import BadValue
from penstock.masking import masked_text
from penstock.plan.operators.node import BUCKETS

VERSION = 1
# What runs the queries: Penstock's epochs, or Spark alone by its own Kafka connector, in micro-batches or in real time.
RunnerKind = Literal["micro-batch", "kafka-connector", "real-time"]
LaneSetting = Literal["auto", "spark"]
Reader = Literal["penstock", "spark"]
Lane = Literal["native", "native partial, spark merge", "native packing, spark state", "spark"]
OutputMode = Literal["append", "update"]
Follows = Literal["partitions", "rows", "spark"]


@dataclass(frozen=True)
class Partitioning:
    """The exchange in front of a node with state.

    exchange  "hash": rows with equal keys go to one task; "single": there is no key, so all go to one
    keys      the columns that are hashed; of a join those of the left side
    buckets   how many buckets of keys hold the state, where Penstock keeps it in Spark's store; else null
    """

    exchange: Literal["hash", "single"]
    keys: tuple[str, ...]
    buckets: int | None


@dataclass(frozen=True)
class PlannedState:
    """The state of a node between epochs.

    store        "spark": an operator of Spark's own; "buckets": Penstock's, by buckets of keys
    bound        what removes entries from it, in words
    bounded      false if nothing does: the state grows with its input
    fingerprint  changes when stored state would change its meaning
    meaning      what the fingerprint is made of, part by part
    """

    store: Literal["spark", "buckets"]
    bound: str
    bounded: bool
    fingerprint: str
    meaning: Mapping[str, str]


@dataclass(frozen=True)
class PlannedTime:
    """Where event time is declared, and what its watermark follows.

    column        the column that holds the time
    sources       the sources whose rows come through here, as one text
    max_delay_us  the watermark is the largest time less this
    idle_after_us after so long without rows it holds up no other event time; null: it always does
    follows       "partitions": the slowest partition; "rows": all rows alike; "spark": Spark's own watermark
    """

    column: str
    sources: str
    max_delay_us: int
    idle_after_us: int | None
    follows: Follows


@dataclass(frozen=True)
class PlannedNode:
    """One operator of the graph.

    id, name      `id` is unique in the plan; counts and errors show `name`
    kind, title   the operator, such as "filter"; and with its name, as errors show it
    detail        SQL, columns or function names
    inputs        ids of the nodes whose rows come in
    columns       the columns that leave it, with their types
    lane, reason  where it runs, and why not in the native lane; null if it does
    watermark     ids of the event times that its watermark is the smallest of; empty if it uses none
    partitioning, state  of nodes with state
    event_time    of nodes that declare one
    target        where a sink's rows go
    warning       what a user should know before running it
    parts         what parts of it do and store, one text each: the operators of a view
    """

    id: str
    name: str
    kind: str
    title: str
    detail: str
    inputs: tuple[str, ...]
    columns: Mapping[str, str]
    lane: Lane
    reason: str | None
    watermark: tuple[str, ...] = ()
    partitioning: Partitioning | None = None
    state: PlannedState | None = None
    event_time: PlannedTime | None = None
    target: str | None = None
    warning: str | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """Rows go from one node to another; `output` is the one that they leave by, such as "late", null the main one."""

    source: str
    target: str
    output: str | None


@dataclass(frozen=True)
class PlannedScan:
    """How a source is read.

    source      id of the source
    reader      who fetches: "penstock", or "spark" for Spark's Kafka connector
    chain       ids of the nodes that run natively inside the scan, in order
    partial     id of the aggregate whose first phase runs there
    late        id of the node whose late rows are separated there, and `late_side` the output they leave by
    replayable  whether rows can be read again after a crash
    packed      id of the node whose rows are packed there, by buckets of keys
    """

    source: str
    reader: Reader
    chain: tuple[str, ...]
    partial: str | None
    late: str | None
    late_side: str | None
    replayable: bool
    packed: str | None = None


@dataclass(frozen=True)
class PlannedQuery:
    """One Spark query, with one output mode and one watermark.

    name          its folder in the checkpoint
    mode          "append": final results; "update": results that are updated
    sinks         ids of the outputs that it computes, and `late_sinks` of those whose late rows it publishes
    nodes         ids of all that it computes
    counts        ids of the nodes whose rows it counts: of a node in several queries the first does
    why           why these outputs share it
    shared        ids of nodes whose rows several branches read from one exchange
    per_branch    ids of nodes that each branch computes for itself, because Spark finds the watermark only so
    redeclares_watermark  whether state follows on state in buckets, where the driver declares the watermark again
    timers        whether nodes of it set timers
    may_keep_splits  whether the rows of its one sink stay in the splits of its one source, and do so in a replay
    rejected_from id of the source whose rejected rows are all it writes; null for other queries
    """

    name: str
    mode: OutputMode
    sinks: tuple[str, ...]
    late_sinks: tuple[str, ...]
    nodes: tuple[str, ...]
    counts: tuple[str, ...]
    why: str
    shared: tuple[str, ...] = ()
    per_branch: tuple[str, ...] = ()
    redeclares_watermark: bool = False
    timers: bool = False
    may_keep_splits: bool = False
    rejected_from: str | None = None


@dataclass(frozen=True)
class PlannedSink:
    """What a sink gets: `guarantee`, and in `guarantee_reason` why it is that one; `target` is where rows go."""

    id: str
    name: str
    target: str
    guarantee: Literal["exactly_once", "at_least_once", "at_most_once"]
    guarantee_reason: str


@dataclass(frozen=True)
class PhysicalPlan:
    """How a pipeline runs.

    version   of this form
    pipeline  the pipeline's name
    pace      as its author chose, and `promise` what that means
    runner    what runs its queries
    overload  as its author chose, and `overload_effect` what that means for its sources
    lane      the setting: "auto", or "spark" if the native lane is off
    nodes     sources first, sinks last, inputs before what uses them
    edges     the same graph as pairs
    scans, queries, sinks  see there
    rejected  the sink of rejected rows; null: they are counted only

    Invariants: every id that is named is that of a node, but for the sink of rejected rows; each sink is in one query.
    """

    pipeline: str
    pace: Literal["throughput", "fast", "realtime"]
    promise: str
    runner: RunnerKind
    overload: Literal["block", "drop", "spill"]
    overload_effect: str
    lane: LaneSetting
    nodes: tuple[PlannedNode, ...]
    edges: tuple[Edge, ...]
    scans: tuple[PlannedScan, ...]
    queries: tuple[PlannedQuery, ...]
    sinks: tuple[PlannedSink, ...]
    rejected: PlannedSink | None
    version: int = field(default=VERSION)

    def node(self, id: str) -> PlannedNode:
        """Return a node by its id."""
        return next(node for node in self.nodes if node.id == id)

    def query(self, name: str) -> PlannedQuery:
        """Return a query by its name."""
        return next(query for query in self.queries if query.name == name)

    @property
    def buckets(self) -> int:
        """How many buckets of keys each node with keyed state has."""
        numbers = (node.partitioning.buckets for node in self.nodes if node.partitioning)
        return next((number for number in numbers if number is not None), BUCKETS)

    @property
    def event_times(self) -> tuple[PlannedNode, ...]:
        """The nodes that declare an event time."""
        return tuple(node for node in self.nodes if node.event_time is not None)

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> PhysicalPlan:
        """Read what `to_json` wrote; fields that a later version has added are passed over."""
        try:
            found = json.loads(text)
            if found["version"] != VERSION:
                message = f"the physical plan has version {found['version']}, and this Penstock reads version {VERSION}"
                raise BadValue(message, hint="run the pipeline once with this version: it writes the plan again")
            return _decode(cls, found)  # type: ignore[no-any-return]
        except (KeyError, TypeError, ValueError) as error:
            message = f"this is not a physical plan: {error!r}"
            raise BadValue(message, hint="pass what `penstock explain --format json` printed") from error


def masked_texts(plan: PhysicalPlan) -> PhysicalPlan:
    """Return a plan without the secrets that SQL or addresses in it may hold."""
    return _decode(PhysicalPlan, _masked(asdict(plan)))  # type: ignore[no-any-return]


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return {key: _masked(one) for key, one in value.items()}
    return [_masked(one) for one in value] if isinstance(value, list | tuple) else value


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, found: Any) -> Any:
    """Build a value of a declared type from JSON."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
        return None if found is None else _decode(kind, found)
    if get_origin(kind) is tuple:
        return tuple(_decode(get_args(kind)[0], one) for one in found)
    if not is_dataclass(kind):
        return found
    made: Any = kind
    types = _types(made)
    return made(**{one.name: _decode(types[one.name], found[one.name]) for one in fields(kind) if one.name in found})
