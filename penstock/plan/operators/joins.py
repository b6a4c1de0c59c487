"""Joins: of two streams within an interval or window, as-of joins, and joins of a stream with a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from penstock.contracts import Source
from penstock.durations import span_text
from penstock.errors import (
    BadJoin,
    BadSchema,
    BadWindow,
    MissingEventTime,
    UnknownColumn,
    UpdatingStream,
    choices,
)
from penstock.plan.operators.node import Node, OneInput
from penstock.schema import Field, Schema
from penstock.windows import Window

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Pairs = tuple[tuple[str, str], ...]
Interval = tuple[int, int]
# Of `within`: rows match however far apart in time they are, so all of them are stored forever.
UNBOUNDED: Literal["unbounded"] = "unbounded"
# Late rows of each side of a join of streams, in the order of its inputs.
LATE = ("late_left", "late_right")
_ASOF: tuple[How, ...] = ("left", "inner")
_UNBOUNDED: tuple[How, ...] = ("inner", "semi")
_TABLE: tuple[How, ...] = ("inner", "left", "semi", "anti")


def late_name(node: str, side: str) -> str:
    """Return the name under which late rows of a node are staged and counted; a join has one for each side.

    >>> late_name("aggregate", "late"), late_name("join", "late_right")
    ('aggregate', 'join+right')
    """
    return node if side == "late" else f"{node}+{side.removeprefix('late_')}"


@dataclass(frozen=True)
class Paired:
    """Which columns a result has: the left's, then those of the right that are not keys, under unique names."""

    left: Schema
    right: Schema
    on: Pairs
    how: How
    suffix: str

    @property
    def rest(self) -> dict[str, str]:
        """The columns of the right side in the result, and their names there."""
        if self.how in ("semi", "anti"):
            return {}
        keys = {right for _, right in self.on}
        mine = set(self.left.names)
        own = [name for name in self.right.names if name not in keys]
        return {name: f"{name}{self.suffix}" if name in mine else name for name in own}

    @property
    def schema(self) -> Schema:
        """The columns of a result; a side that may be missing is null."""
        keys = dict(self.on)
        left = tuple(Field(f.name, f.type, f.nullable or self._lacks_left(f, keys)) for f in self.left)
        lacks = self.how in ("left", "full")
        right = (self.right.field(name) for name in self.rest)
        return Schema(left + tuple(Field(self.rest[f.name], f.type, f.nullable or lacks) for f in right))

    def _lacks_left(self, field: Field, keys: dict[str, str]) -> bool:
        if self.how not in ("right", "full"):
            return False
        return field.name not in keys or self.right.field(keys[field.name]).nullable

    def check(self) -> None:
        """Raise if keys are missing or differ in type, or if two columns would have one name."""
        if not self.on:
            message = "no key is given"
            raise BadJoin(message, hint=choices("columns on both sides", set(self.left.names) & set(self.right.names)))
        for left, right in self.on:
            kinds = _field(self.left, left, "left").type, _field(self.right, right, "right").type
            if kinds[0] != kinds[1]:
                message = f"the keys '{left}' and '{right}' have different types: {kinds[0]} and {kinds[1]}"
                raise BadSchema(message, hint=f'cast one of them upstream: .with_columns({left}="cast({left} as ...)")')
        names = [*self.left.names, *self.rest.values()]
        clash = next((name for name in names if names.count(name) > 1), None)
        if clash:
            message = f"two columns of the result would be called '{clash}'"
            raise BadJoin(message, hint='choose another suffix="...", or rename() one upstream')


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamJoin(Node):
    """What joins of two streams share: both have their event time, and late rows of either have a side output."""

    stateful = True
    sides = LATE
    streams: tuple[Node, ...]
    on: Pairs
    how: How
    suffix: str = "_right"

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left and right."""
        return self.streams

    @property
    def paired(self) -> Paired:
        """The columns of both sides in the result."""
        left, right = self.streams
        return Paired(left.schema, right.schema, self.on, self.how, self.suffix)

    @property
    def waits(self) -> bool:
        """A row without a partner is emitted when none can come any more."""
        return True

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The left's."""
        return tuple(left for left, _ in self.on)

    @property
    def state_bound(self) -> str | None:
        """Rows that can meet no other go."""
        return "the watermark: rows that can meet no other any more go"

    def side_schema(self, side: str) -> Schema:
        """Late rows are as they arrived."""
        return self.streams[LATE.index(side)].schema

    def _check_streams(self, *, needs_time: bool = True) -> Schema:
        for node, side in zip(self.streams, ("left", "right"), strict=True):
            if node.updating:
                message = f"the rows of the {side} side are updated later"
                raise UpdatingStream(message, hint='use emit="final" on the window upstream')
            if needs_time and not node.event_time:
                message = f"the {side} side has no event time"
                hint = 'call .event_time(column, max_delay="5s") on it first; a join of all columns has none (full)'
                raise MissingEventTime(message, hint=hint)
        self.paired.check()
        return self.paired.schema

    @property
    def _keys(self) -> str:
        types = self.streams[0].schema.types
        return ", ".join(f"{left} = {right} {types[left]}" for left, right in self.on)

    @property
    def _rows(self) -> dict[str, str]:
        return {"left": self.streams[0].schema.nullable().ddl, "right": self.streams[1].schema.nullable().ddl}


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(StreamJoin):
    """Rows of two streams with the same key, near each other in time; or at any time, which needs no event time."""

    kind = "join"
    within: Interval | Window | Literal["unbounded"]

    def _checked(self) -> Schema:
        _known(self.how, get_args(How))
        if self.unbounded:
            return self._check_unbounded()
        window = self.within if isinstance(self.within, Window) else None
        if window and (window.kind not in ("tumbling", "sliding") or not window.by_event_time):
            message = f"streams cannot be joined in {self.within}"
            raise BadWindow(message, hint='use tumbling(), sliding(), or an interval: within=("-5m", "1h")')
        if self.interval[0] > self.interval[1]:
            message = f"the interval ends before it begins: {self._within}"
            raise BadJoin(message, hint="within=(from, to) is the right's time less the left's")
        return self._check_streams()

    def _check_unbounded(self) -> Schema:
        if self.how not in _UNBOUNDED:
            why = "a partner may always come, so a row without one is never final"
            message = f'within="unbounded" has no {self.how} join: {why}'
            hint = 'use how="inner" or "semi", or set a bound in time: within=("0s", "7d")'
            raise BadJoin(message, hint=hint)
        return self._check_streams(needs_time=False)

    @property
    def unbounded(self) -> bool:
        """Whether rows match however far apart in time they are: then none is late, and none ever expires."""
        return self.within == UNBOUNDED

    @property
    def over_all_time(self) -> bool:
        """Without a bound."""
        return self.unbounded

    @property
    def state_bound(self) -> str | None:
        """The interval, if there is one."""
        return None if self.unbounded else super().state_bound

    @property
    def time_span_us(self) -> int:
        """The longer end of the interval."""
        return max(map(abs, self.interval))

    @property
    def sides(self) -> tuple[str, ...]:  # type: ignore[override]
        """Only a bound in time can be missed."""
        return () if self.unbounded else LATE

    @property
    def event_time(self) -> bool:
        """The left's, of a right join the right's; a full join's rows may lack either."""
        return self.how != "full" and self.streams[0].event_time

    @property
    def warning(self) -> str:
        """State without a bound never shrinks."""
        if not self.unbounded:
            return ""
        kept = (
            "left rows without a partner and all keys of the right" if self.how == "semi" else "all rows of both sides"
        )
        return f'within="unbounded": {kept} are stored in the state forever; it grows with every row and never shrinks'

    @property
    def waits(self) -> bool:
        """A row without a partner is known when none can come any more."""
        return self.how in ("left", "right", "full", "anti")

    @property
    def interval(self) -> Interval:
        """The right's time less the left's, at least and at most, that the join asks for or implies."""
        if isinstance(self.within, Window):
            return 1 - self.within.size_us, self.within.size_us - 1
        return (0, 0) if isinstance(self.within, str) else self.within

    @property
    def lag_us(self) -> int:
        """How far the time of a result may be older than the watermark that its inputs wait for."""
        low, high = self.interval
        return max(0, -low if self.how == "right" else high)

    @property
    def kept(self) -> dict[str, str]:
        """The rows of both sides are stored, with all their columns."""
        return {"keys": self._keys, "how": self.how, "within": self._within, **self._rows}

    @property
    def _within(self) -> str:
        if isinstance(self.within, Window | str):
            return str(self.within)
        return f"{_span(self.within[0])} to {_span(self.within[1])}"

    @property
    def detail(self) -> str:
        """Keys, kind and time."""
        return f"{self.how} on {_pairs_text(self.on)} within {self._within}"


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinAsof(StreamJoin):
    """Each left row with the newest right row of its key that is not newer than it."""

    kind = "join_asof"
    bucketed = True
    max_age_us: int | None = None

    def _checked(self) -> Schema:
        _known(self.how, _ASOF)
        return self._check_streams()

    @property
    def kept(self) -> dict[str, str]:
        """Left rows wait for the watermark; of right rows the newest of each key are stored."""
        return {"keys": self._keys, "max_age": _age(self.max_age_us), **self._rows}

    @property
    def detail(self) -> str:
        """Keys, kind and age."""
        return f"{self.how} on {_pairs_text(self.on)}, max_age {_age(self.max_age_us)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinTable(OneInput):
    """Each row with the row of a table that has its key; of a history, with the one that was valid at its time."""

    kind = "join_table"
    counts_missing_as = "filtered"
    table: Source
    table_key: tuple[str, ...]
    on: Pairs
    how: How
    suffix: str = "_right"
    refresh_us: int = 60_000_000
    valid_from: str | None = None
    asof: bool = False
    max_age_us: int | None = None
    max_staleness_us: int = 600_000_000

    def _checked(self) -> Schema:
        _known(self.how, _ASOF if self.asof else _TABLE)
        if self.input.updating:
            message = "its input rows are updated later"
            raise UpdatingStream(message, hint='use emit="final" on the window upstream')
        self._check_history()
        self.paired.check()
        rights = sorted(right for _, right in self.on)
        if rights != sorted(self.table_key):
            message = f"the table's key is {', '.join(self.table_key)}, and the join is on {', '.join(rights)}"
            raise BadJoin(message, hint="join on the whole key: one row of the table for each row of the stream")
        return self.paired.schema

    def _check_history(self) -> None:
        if self.valid_from and not self.asof:
            message = f"table '{self.table.name}' has versions of a row (valid_from), so a key has many rows"
            raise BadJoin(message, hint="use join_asof(): the version that was valid at each row's event time")
        if self.asof and not self.valid_from:
            message = f"table '{self.table.name}' has no valid_from column"
            raise BadJoin(message, hint='read it with read_table(..., valid_from="column"), or use join()')
        if self.asof and not self.input.event_time:
            message = "the stream has no event time"
            raise MissingEventTime(message, hint='call .event_time(column, max_delay="5s") first')

    @property
    def paired(self) -> Paired:
        """The columns of both sides in the result."""
        return Paired(self.input.schema, self.table.schema, self.on, self.how, self.suffix)

    @property
    def tables(self) -> tuple[Source, ...]:
        """The one."""
        return (self.table,)

    @property
    def detail(self) -> str:
        """Table, keys, kind, and how often it is read again."""
        when = f", as of its time, max_age {_age(self.max_age_us)}" if self.asof else ""
        again = f"read again every {span_text(self.refresh_us)}"
        return f"{self.how} with table {self.table.name} on {_pairs_text(self.on)}{when}, {again}"


def table_joins_in(nodes: Iterable[Node]) -> tuple[JoinTable, ...]:
    """Return the joins with tables among nodes."""
    return tuple(node for node in nodes if isinstance(node, JoinTable))


def _field(schema: Schema, name: str, side: str) -> Field:
    try:
        return schema.field(name)
    except UnknownColumn as error:
        message = f"the {side} side has no column '{name}'"
        raise UnknownColumn(message, hint=error.hint) from None


def _known(how: str, valid: tuple[str, ...]) -> None:
    if how not in valid:
        message = f"how={how!r} is not supported here"
        raise BadJoin(message, hint=choices("how", valid, str(how)))


def _pairs_text(on: Pairs) -> str:
    return ", ".join(left if left == right else f"{left} = {right}" for left, right in on)


def _age(us: int | None) -> str:
    return "any" if us is None else span_text(us)


def _span(us: int) -> str:
    return f"-{span_text(-us)}" if us < 0 else span_text(us)
