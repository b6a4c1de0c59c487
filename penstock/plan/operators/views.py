"""A view: a relation over streams, whose result follows them by changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from penstock.durations import span_text
from penstock.errors import BadSchema, MissingEventTime
from penstock.plan.operators.node import SINCE_LATER, Node
from penstock.plan.operators.stateless import final_only
from penstock.plan.operators.view_partitioning import Division, OneBucket, divided
from penstock.plan.operators.view_state import bounds_of, kept_by
from penstock.plan.relations import Input, Latest, Relation
from penstock.schema import Field, Schema

# Of an input whose rows have a time to live: whether this row takes out one that has expired.
EXPIRED = "_expired"
# What a row of changes is: "insert", "update" (of the row with the same key) or "delete".
CHANGE = "_change"


@dataclass(frozen=True)
class ViewInput:
    """A stream that a relation reads under a name; its rows leave the view `ttl_us` after their event time, by key."""

    name: str
    node: Node
    ttl_us: int | None = None
    key: tuple[str, ...] = ()

    def same_rows(self, other: ViewInput) -> bool:
        """Return whether both are one stream, whose rows stay as long."""
        return (self.node, self.ttl_us, self.key) == (other.node, other.ttl_us, other.key)


@dataclass(frozen=True, eq=False, kw_only=True)
class MaintainView(Node):
    """The changes of a relation: in each epoch what leaves it and what comes.

    `names` and `ttls` are those of the streams, in order. `replaces` are columns that no two rows have in common: then
    a row that takes the place of another is an update. With None it is a delete and an insert.
    """

    kind = "view"
    stateful = True
    bucketed = True
    row_wise = False
    makes_rows = True
    streams: tuple[Node, ...]
    names: tuple[str, ...]
    relation: Relation
    ttls: tuple[int | None, ...] = ()
    replaces: tuple[str, ...] | None = field(default=None, metadata=SINCE_LATER)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams."""
        return self.streams

    def _checked(self) -> Schema:
        for node, ttl in zip(self.streams, self._ttls, strict=True):
            if ttl is not None and not node.event_time:
                message = "ttl is measured in event time, and the stream has none"
                raise MissingEventTime(message, hint='call .event_time(column, max_delay="5s") before .view()')
        final_only(self)
        if CHANGE in self.relation.schema:
            message = f"the view has a column '{CHANGE}', which the changes of a view have too"
            raise BadSchema(message, hint=f'rename it in the view: .select(..., change="{CHANGE}")')
        return Schema((*self.relation.schema.fields, Field(CHANGE, "string", nullable=False)))

    @property
    def _ttls(self) -> tuple[int | None, ...]:
        return self.ttls or (None,) * len(self.streams)

    @property
    def updating(self) -> bool:
        """Never: changes are final. Its input must not be either."""
        return any(node.updating for node in self.inputs)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that no two rows of the view have in common."""
        return self.relation.keys_unique or ()

    @property
    def event_time(self) -> bool:
        """A change has no time of its own."""
        return False

    @property
    def over_all_time(self) -> bool:
        """Unless rows leave by their time."""
        return all(ttl is None for ttl in self._ttls)

    @property
    def sets_timers(self) -> bool:
        """No group waits for a processing time."""
        return False

    @cached_property
    def division(self) -> Division | OneBucket:
        """The columns by which the rows of each stream are divided, or why they are not."""
        return divided(self.relation)

    def packed_by(self, stream: Node) -> tuple[str, ...] | None:
        """A scan leaves out no event time, so that a stream has to have one if, and only if, it is needed."""
        single = len(self.streams) == 1
        fits = stream.event_time != self.over_all_time if single else self.over_all_time and not stream.event_time
        return self.divided_by(self.streams.index(stream)) if fits and self.streams.count(stream) == 1 else None

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Those of the first stream."""
        return self.divided_by(0)

    def divided_by(self, number: int) -> tuple[str, ...]:
        """Return the columns by which the rows of a stream are divided; none if all are in one bucket."""
        return () if isinstance(self.division, OneBucket) else self.division[self.names[number]]

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns that identify a row of the view."""
        return self.key

    @property
    def kept(self) -> dict[str, str]:
        """Every operator, by its number and without the names of inputs; and how rows are divided."""
        places = {name: f"input {number}" for number, name in enumerate(self.names)}
        meaning = {}
        for number, one in enumerate(self.relation.operators):
            # Of an input the columns count that the operator after it stores.
            stored = f" ({one.schema.nullable().ddl})" if isinstance(one, Latest) else ""
            meaning[f"{number} {one.kind}"] = places[one.name] if isinstance(one, Input) else f"{one.detail}{stored}"
        division = self.division
        by = "one bucket" if isinstance(division, OneBucket) else _division_text(division, places)
        ttls = zip(self.names, self._ttls, strict=True)
        times = {f"ttl of {places[name]}": span_text(us) for name, us in ttls if us is not None}
        return {"relation": self._shape, **meaning, "divided by": by, **times}

    @property
    def _shape(self) -> str:
        """Which operator reads which, by their numbers."""
        numbers = {one: number for number, one in enumerate(self.relation.operators)}
        parts = (f"{number}({','.join(str(numbers[i]) for i in one.inputs)})" for one, number in numbers.items())
        return " ".join(parts)

    @property
    def detail(self) -> str:
        """The last operator, and over which streams."""
        return f"{self.relation.kind} {self.relation.detail} over {', '.join(self.names)}"

    @property
    def explained(self) -> tuple[str, ...]:
        """What each operator stores and what bounds that, and how rows are divided."""
        ttls = dict(zip(self.names, self._ttls, strict=True))
        lines = [
            f"{number} {one.kind} {one.detail}: {kept_by(one, self.names)}"
            for number, one in enumerate(self.relation.operators)
        ]
        division = self.division
        if isinstance(division, OneBucket):
            lines.append(f"one bucket, so one task: {division.why}")
        else:
            lines.append(f"rows are divided over buckets: {_division_text(division, {})}")
        return (*lines, *(f"bound: {text}" for text, bounded in bounds_of(self.relation, ttls) if bounded))

    @property
    def state_bound(self) -> str | None:
        """What lets rows go, if all of them can."""
        bounds = bounds_of(self.relation, dict(zip(self.names, self._ttls, strict=True)))
        return "; ".join(text for text, _ in bounds) if all(bounded for _, bounded in bounds) else None

    @property
    def warning(self) -> str:
        """State that can grow forever."""
        bounds = bounds_of(self.relation, dict(zip(self.names, self._ttls, strict=True)))
        growing = [text for text, bounded in bounds if not bounded]
        return f"state can grow forever: {'; '.join(growing)}" if growing else ""


def _division_text(division: Division, places: dict[str, str]) -> str:
    return "; ".join(f"{places.get(name, name)} by {', '.join(columns)}" for name, columns in division.items())
