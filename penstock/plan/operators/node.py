"""The base classes of all operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

from penstock.contracts import Sink, Source
from penstock.plan.checked_operator import CheckedOperator
from penstock.schema import Schema
from penstock.windows import Window

# For a field that was added later: fingerprints leave it out where it has its default.
SINCE_LATER = {"since": "later"}
# Number of buckets of keys, where the settings have no other: a checkpoint keeps the number that it started with.
# A bucket costs a call in every epoch that has rows for it, and is the smallest part of a node that a task can have;
# 1, 2, 3, 4, 6 and 12 tasks get equal shares.
BUCKETS = 12


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(CheckedOperator):
    """One operator. Frozen; checked and typed when it is built; two that are alike are one.

    Invariants: `inputs` were built before it; `schema` holds on every row that leaves it; `updating` means that a
    row replaces an earlier one with the same `key`; `event_time` means that each row still has its time; `bucketed`
    means that its state is stored in buckets of keys, whose rows arrive in the order of their source.

    What a node means to lanes, queries, lowering, accounting, fingerprints and drawing is declared here, so that no
    other module lists node types. The defaults suit a stateless operator that Spark runs row by row: a new operator
    overrides what differs. A field that has the name of one of these properties needs a default value.
    """

    kind: ClassVar[str]
    stateful: ClassVar[bool] = False
    bucketed: ClassVar[bool] = False
    sides: ClassVar[tuple[str, ...]] = ()
    # Lanes: there is a native lowering; the node uses it if its `row_sql` means the same there.
    native: ClassVar[bool] = False
    # Lanes: its buckets of keys take the rows that come in as they are, so that a scan can pack them.
    packs_rows: ClassVar[bool] = False
    # Lanes: Spark's real-time mode has such an operator.
    realtime: ClassVar[bool] = False
    # Replay and recovery: the columns that leave are columns that came, unchanged.
    keeps_columns: ClassVar[bool] = False
    # Watermarks: each row comes of one row, and so of one partition.
    row_wise: ClassVar[bool] = True
    # Lowering: several branches may each compute it; not so where user code is called.
    repeatable: ClassVar[bool] = True
    # Sinks: results of a key have an order of their own, and are not sorted by event time for keyed sinks.
    emits_in_order: ClassVar[bool] = False
    # Sinks: no result comes from one row, so none has that row's position in the source.
    loses_positions: ClassVar[bool] = False
    # Backpressure: it calls services, and waits for their answers.
    waits_for_calls: ClassVar[bool] = False
    # Accounting: rows that leave are other rows than those that came, so they are counted where they leave.
    makes_rows: ClassVar[bool] = False
    # Accounting: what rows are counted as that come in and do not leave.
    counts_missing_as: ClassVar[Literal["filtered", "duplicate"] | None] = None
    name: str | None = None
    schema: Schema = field(init=False, repr=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The upstream nodes, in order."""
        return ()

    @property
    def updating(self) -> bool:
        """Whether later rows replace earlier ones."""
        return any(node.updating for node in self.inputs)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify the row that an update replaces; empty if rows are final."""
        return self.inputs[0].key if self.inputs else ()

    @property
    def event_time(self) -> bool:
        """Whether rows carry their event time."""
        return bool(self.inputs) and all(node.event_time for node in self.inputs)

    @property
    def label(self) -> str:
        """The node as an error names it."""
        return f"{self.kind} '{self.name}'" if self.name else self.kind

    @property
    def explained(self) -> tuple[str, ...]:
        """Further lines for `explain`: what parts of it do and store."""
        return ()

    @property
    def warning(self) -> str:
        """What a user should know before running it; `explain` prints it."""
        return ""

    def side_schema(self, side: str) -> Schema:
        """The schema of a side output: late rows are as they arrived."""
        return self.inputs[0].schema

    @property
    def waits(self) -> bool:
        """Whether it emits rows when the watermark has passed them, which Spark supports in append mode only."""
        return False

    @property
    def kept(self) -> dict[str, str]:
        """What the node's state depends on, by name; if one changes, the state is incompatible."""
        return {}

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The Python functions that the node calls."""
        return ()

    # --- lanes and expressions ---

    @property
    def row_sql(self) -> tuple[str, ...]:
        """The SQL that it evaluates on every row that comes in."""
        return ()

    @property
    def aggregate_sql(self) -> tuple[str, ...]:
        """The SQL that it evaluates over groups of rows."""
        return ()

    @property
    def carried(self) -> Mapping[str, str] | None:
        """The columns that leave as they came, each with its name in the input; None if rows are newly created."""
        return {name: name for name in self.schema.names} if self.keeps_columns else None

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns that name a result of a group, and are the same in a replay."""
        return ()

    @property
    def deterministic(self) -> bool:
        """Whether the same rows come of the same input in a replay."""
        return True

    # --- event time ---

    @property
    def window(self) -> Window | None:
        """The window whose results it computes."""
        return None

    @property
    def overlaps(self) -> bool:
        """Whether a row that is not late may belong to windows that have ended."""
        return False

    @property
    def is_processing_time(self) -> bool:
        """Whether its results depend on processing time: on when an epoch ran."""
        return False

    @property
    def lateness_us(self) -> int:
        """How long after the watermark rows are not late yet."""
        return 0

    @property
    def late_to(self) -> Sink | None:
        """The sink of its late rows, if it was given as an argument."""
        return None

    @property
    def over_all_time(self) -> bool:
        """Whether it compares rows of all times, and never expires state."""
        return False

    @property
    def uses_event_time(self) -> bool:
        """Whether what it stores or gives depends on the event time of its rows."""
        return self.stateful and not self.over_all_time and any(one.event_time for one in self.inputs)

    @property
    def time_span_us(self) -> int:
        """How far from a row's time its results may lie."""
        return 0

    @property
    def lag_us(self) -> int | None:
        """How far the time of its results may be behind the watermark that its inputs wait for; None: it is not."""
        return None

    @property
    def unbounded(self) -> bool:
        """Whether its results have times of any age."""
        return False

    # --- state and order ---

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The columns by which its state is divided, and its rows are exchanged."""
        return ()

    def packed_by(self, stream: Node) -> tuple[str, ...] | None:
        """Return the columns by which a scan can pack the rows of one of its inputs; None if it cannot."""
        return self.state_keys if self.packs_rows else None

    @property
    def state_bound(self) -> str | None:
        """What removes entries from its state, in words; None if nothing does."""
        return None

    @property
    def sets_timers(self) -> bool:
        """Whether its state waits for times."""
        return self.bucketed

    @property
    def keeps_order(self) -> bool:
        """Whether rows leave in the order in which they came."""
        return not self.stateful

    # --- outputs, connectors and user code ---

    @property
    def outputs(self) -> tuple[tuple[str, Schema], ...]:
        """The outputs that its function names, besides the main one."""
        return ()

    @property
    def side_of(self) -> Node | None:
        """The node that it is a further output of."""
        return None

    @property
    def side_name(self) -> str | None:
        """The output of its input that it reads; None is the main one."""
        return None

    @property
    def is_late_output(self) -> bool:
        """Whether its rows are those that a node did not take."""
        return False

    @property
    def default_name(self) -> str | None:
        """Its name before those of operators are made up: given by the author, or by what a source or sink touches."""
        return self.name

    @property
    def tables(self) -> tuple[Source, ...]:
        """The tables that it looks rows up in."""
        return ()

    @property
    def target(self) -> str:
        """Where a sink's rows go."""
        return ""

    @property
    def classes(self) -> tuple[type, ...]:
        """The user's classes that it calls."""
        return ()

    # --- real-time mode ---

    @property
    def not_realtime(self) -> tuple[str, str] | None:
        """Why Spark's real-time mode cannot run such a node, and what to do; None if it can."""
        return None if self.realtime else (f"Spark's real-time mode has no {self.kind}", "leave it out")

    @property
    def realtime_limits(self) -> tuple[tuple[str, str], ...]:
        """What of its arguments real-time mode cannot do, each with what to do."""
        return ()

    def with_inputs(self, inputs: tuple[Node, ...], **changes: Any) -> Node:
        """Return the same node over other inputs; its fields for them are `input` or `streams`."""
        names = {part.name for part in fields(self) if part.init}
        changes |= {"input": inputs[0]} if "input" in names else {}
        changes |= {"streams": inputs} if "streams" in names else {}
        return replace(self, **changes)


@dataclass(frozen=True, eq=False, kw_only=True)
class OneInput(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)
