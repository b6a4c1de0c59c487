"""Relations as a fluent layer: each call adds one operator and changes nothing. `penstock.stream.View` ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from penstock import argument_checks as checks
from penstock.argument_checks import On
from penstock.contracts import Sink, own_sink
from penstock.errors import BadValue, PipelineError, UnknownColumn, choices
from penstock.flows import Names, Output, as_names, checked_name, named_columns, selected
from penstock.plan.graph import reads_in, upstream
from penstock.plan.operators import stateless
from penstock.plan.operators.node import Node
from penstock.plan.operators.views import CHANGE, EXPIRED, MaintainView, ViewInput
from penstock.plan.relations import (
    Aggregate,
    Distinct,
    Except,
    Filter,
    Input,
    Intersect,
    Join,
    Latest,
    Project,
    Relation,
    Top,
    Union,
)
from penstock.plan.relations.groups import Direction, Nulls, Order
from penstock.plan.relations.joins import How
from penstock.schema import Field, Schema, quoted

if TYPE_CHECKING:
    from typing import Self

# Of a row of changes: whether it deletes its key.
REMOVED = f"{CHANGE} = 'delete'"


@dataclass(frozen=True)
class Relational:
    """A relation over streams; `streams` has those that its `Input`s name, each once."""

    relation: Relation
    streams: tuple[ViewInput, ...]
    given_name: str | None = None

    @property
    def schema(self) -> Schema:
        """The columns of every row."""
        return self.relation.schema

    @property
    def name(self) -> str:
        """The name that it was given, or "view"."""
        return self.given_name or MaintainView.kind

    @property
    def unique(self) -> tuple[str, ...] | None:
        """Columns that no two rows have in common, as far as that is known."""
        return self.relation.keys_unique

    def select(self, *columns: str | Mapping[str, str], **named: str) -> Self:
        """Keep only these columns: names, or SQL expressions as `name="expression"`."""
        pairs = [selected(column, self.schema) for column in columns if isinstance(column, str)]
        return self._over(Project(self.relation, (*pairs, *named_columns(columns, named))))

    def with_columns(self, *columns: Mapping[str, str], **named: str) -> Self:
        """Add columns, or replace those of the same name."""
        new = dict(named_columns(columns, named))
        kept = tuple((name, new.pop(name, quoted(name))) for name in self.schema.names)
        return self._over(Project(self.relation, (*kept, *new.items())))

    def filter(self, condition: str) -> Self:
        """Keep the rows for which the condition holds."""
        return self._over(Filter(self.relation, condition))

    def join(
        self, other: Self, on: On, how: How = "inner", *, condition: str | None = None, suffix: str = "_right"
    ) -> Self:
        """Join rows of the same key, and for which `condition` holds over the columns of both.

        Results have the left's columns, then the right's without keys of the same name; other columns that both have
        get the suffix. `semi` and `anti` keep the rows of the left that have a partner, or none.
        """
        pairs = checks.pairs(on)
        return self._with([other], "join", lambda left, right: Join(left, right, pairs, how, condition, suffix))

    def union(self, *others: Self) -> Self:
        """Return the rows of all views, which must have the same columns; a row that two have is there twice."""
        return self._with(others, "union", lambda *parts: Union(parts)) if others else self

    def except_(self, other: Self) -> Self:
        """Return the different rows that the other view has not."""
        return self._with([other], "except_", Except)

    def intersect(self, other: Self) -> Self:
        """Return the different rows that the other view has too."""
        return self._with([other], "intersect", Intersect)

    def distinct(self) -> Self:
        """Return each row once."""
        return self._over(Distinct(self.relation))

    def top(self, n: int, by: Names, *, rank: str | None = None) -> Self:
        """Keep the n rows with the largest `by`; with "price asc" the smallest. Nulls come last.

        Ties are broken by all columns. `rank` is the name of a column for the place of each row, from 1.
        """
        return self._over(Top(self.relation, (), n, order(by), rank))

    def named(self, name: str) -> Self:
        """Name the view; its state and counts use this name."""
        return replace(self, given_name=checked_name(name))

    def _over(self, relation: Relation) -> Self:
        return replace(self, relation=relation, given_name=None)

    def _with(self, others: Sequence[Any], method: str, made: Any) -> Self:
        for other in others:
            if not isinstance(other, Relational):
                message = f"{checks.shown(other)} is not a view"
                raise BadValue(message, node=method, hint="pass a View: stream.view(key) makes one")
        relations, streams = combined([self, *others])
        return replace(self, relation=made(*relations), streams=streams, given_name=None)

    def _group_keys(self, keys: tuple[str, ...], named: Mapping[str, str]) -> tuple[Self, tuple[str, ...]]:
        view = self.with_columns(**named) if named else self
        for name in (*keys, *named):
            if not isinstance(name, str) or name not in view.schema:
                message = f"unknown column {checks.shown(name)}"
                raise UnknownColumn(
                    message, node="group_by", hint=choices("columns here", view.schema.names, str(name))
                )
        return view, (*keys, *named)


def combined(views: Sequence[Relational]) -> tuple[list[Relation], tuple[ViewInput, ...]]:
    """Return the relations of several views over common streams: one that several read is one input.

    Inputs that have the same name and are different streams are renamed.
    """
    streams: dict[str, ViewInput] = {}
    relations = []
    for view in views:
        names = {}
        for stream in view.streams:
            known = next((name for name, one in streams.items() if one.same_rows(stream)), None)
            names[stream.name] = known or _free(stream.name, streams)
            streams.setdefault(names[stream.name], replace(stream, name=names[stream.name]))
        relations.append(_renamed(view.relation, names, {}))
    return relations, tuple(streams.values())


def maintained(view: Relational, replaces: tuple[str, ...] | None) -> MaintainView:
    """Return the node that maintains a view."""
    ttls = tuple(stream.ttl_us for stream in view.streams)
    return MaintainView(
        streams=tuple(stream.node for stream in view.streams),
        names=tuple(stream.name for stream in view.streams),
        relation=view.relation,
        ttls=ttls if any(ttl is not None for ttl in ttls) else (),
        replaces=replaces,
        name=view.given_name,
    )


def written(
    sink: Sink, node: Callable[[tuple[str, ...] | None], MaintainView], unique: tuple[str, ...] | None, *, whole: bool
) -> Output:
    """Return the output of a view: the sink decides whether it gets upserts and deletes, or changes as rows.

    Where its key is another than that of the view, a changed row is a delete and an insert.
    """
    label = f"to {type(sink).__name__} '{sink.name}'"
    try:
        taker = sink.for_view(unique, REMOVED, whole=whole)
    except PipelineError as error:
        error.node = error.node or label
        raise
    if taker is None:
        return Output(stateless.Write(input=node(unique), sink=own_sink(sink)))
    same = unique is not None and {*taker.view_key} == {*unique}
    return Output(stateless.Write(input=node(unique if same else None), sink=own_sink(taker), hidden=(CHANGE,)))


def latest(
    node: Node, key: tuple[str, ...], value: tuple[str, ...] | None, remove: str | None, ttl_us: int | None
) -> tuple[Relation, ViewInput]:
    """Return a stream as a relation; where rows expire, they come a second time to be removed."""
    name = node.name or "+".join(read.default_name for read in reads_in(upstream(node)))
    if ttl_us is None:
        return Latest(Input(name, node.schema), key, value, remove), ViewInput(name, node, ttl_us)
    given = Input(name, Schema((*node.schema.fields, Field(EXPIRED, "boolean", nullable=False))))
    values = value if value is not None else tuple(one for one in node.schema.names if one not in key)
    if remove is not None and not key:
        message = "without a key, rows that are removed cannot have a ttl too"
        raise BadValue(message, node="view", hint="give the view a key, or leave out remove= or ttl=")
    removed = EXPIRED if remove is None else f"{EXPIRED} OR coalesce({remove}, false)"
    return Latest(given, key, values, removed), ViewInput(name, node, ttl_us, key)


def order(by: Names) -> Order:
    """Return an order from texts such as "price", "price desc" and "id asc": the largest first by default.

    >>> order(["price", "id asc"])
    (('price', 'desc', 'last'), ('id', 'asc', 'last'))
    """
    return tuple(_ordered(one) for one in as_names(by))


def _ordered(sql: str) -> tuple[str, Direction, Nulls]:
    expression, _, direction = sql.rpartition(" ")
    if direction.lower() == "asc":
        return expression, "asc", "last"
    return (expression if direction.lower() == "desc" else sql), "desc", "last"


def _free(name: str, taken: Mapping[str, Any]) -> str:
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _renamed(relation: Relation, names: Mapping[str, str], made: dict[Relation, Relation]) -> Relation:
    """Return a relation whose inputs have other names."""
    if all(old == new for old, new in names.items()):
        return relation
    if relation not in made:
        made[relation] = _rebuilt(relation, names, made)
    return made[relation]


def _rebuilt(relation: Relation, names: Mapping[str, str], made: dict[Relation, Relation]) -> Relation:
    if isinstance(relation, Input):
        return replace(relation, name=names[relation.name])
    changed: dict[str, Any] = {}
    for part in fields(relation):  # type: ignore[arg-type]
        value = getattr(relation, part.name) if part.init else None
        if isinstance(value, Relation):
            changed[part.name] = _renamed(value, names, made)
        elif isinstance(value, tuple) and value and all(isinstance(one, Relation) for one in value):
            changed[part.name] = tuple(_renamed(one, names, made) for one in value)
    return replace(relation, **changed)  # type: ignore[type-var]


def aggregated(relation: Relation, keys: tuple[str, ...], columns: Any, named: Mapping[str, str]) -> Aggregate:
    """Return the aggregates of groups."""
    return Aggregate(relation, keys, named_columns(columns, named))
