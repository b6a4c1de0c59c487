"""Random relations and random epochs: inserts, updates and deletes, with nulls, NaN and the edges of types."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

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
from penstock.schema import Field, Schema
from tests.incremental.circuit.harness import Epoch

Draw = Any
COLUMNS = "k int, s string, n bigint, d decimal(10,2), x double, t timestamp, f boolean"
A, B = Input("a", Schema(COLUMNS)), Input("b", Schema(COLUMNS))
LOG = Input("log", Schema(f"{COLUMNS}, gone boolean"))
LATEST = Latest(LOG, ("k", "s"), ("n", "d", "x", "t"), "gone")

_TIMES = [
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 30, 23, 59, 59, 999999, UTC),
]
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from([None, 0, 1, 2, 3, 2**31 - 1, -(2**31)]),
    "s": st.sampled_from([None, "", "a", "b", "ä", "a" * 40, "\U0001f600"]),
    "n": st.sampled_from([None, 0, 1, -1, 2, 7, 2**40, -(2**40)]),
    "d": st.sampled_from([None, *map(Decimal, ("0.00", "0.01", "-0.01", "1.50", "99999999.99", "-99999999.99"))]),
    "x": st.sampled_from([None, 0.0, -0.0, 0.25, -1.5, 3.0, float("nan")]),
    "t": st.sampled_from([None, *_TIMES]),
    "f": st.sampled_from([None, True, False]),
    "gone": st.sampled_from([None, False, False, True]),
}
ROWS = st.tuples(*(_VALUES[name] for name in A.schema.names))
LOG_ROWS = st.tuples(*(_VALUES[name] for name in LOG.schema.names))
_AGGREGATES = {
    "int": ("sum({0})", "max({0})", "min({0})", "avg({0})", "count(DISTINCT {0})", "median({0})"),
    "bigint": ("sum({0})", "max({0})", "min({0})", "avg({0})", "count({0})", "percentile({0}, 0.3)"),
    "double": ("max({0})", "min({0})", "count({0})", "sum({0})", "avg({0})", "count(DISTINCT {0})"),
    "string": ("max({0})", "min({0})", "count(DISTINCT {0})"),
    "timestamp": ("max({0})", "min({0})", "count(DISTINCT {0})"),
    "boolean": ("bool_and({0})", "bool_or({0})", "count_if({0})"),
}
_DECIMALS = ("sum({0})", "max({0})", "min({0})", "count(DISTINCT {0})")
_CONDITIONS = {
    "int": "{0} > 0",
    "bigint": "{0} % 2 = 0",
    "double": "{0} < 1e0",
    "string": "{0} >= 'a'",
    "boolean": "{0}",
}
# More pairs than this are not joined again: the judge computes them all in each epoch.
_MOST_ROWS = 3000


@st.composite
def epochs(draw: Draw, most: int = 5) -> list[Epoch]:
    """Draw epochs; what is deleted is there."""
    there: dict[str, list[Any]] = {"a": [], "b": []}
    made: list[Epoch] = []
    for _ in range(draw(st.integers(1, most))):
        epoch: Epoch = {}
        for name, rows in there.items():
            changes = []
            gone = draw(st.lists(st.integers(0, len(rows) - 1), max_size=4, unique=True)) if rows else []
            for number in sorted(gone, reverse=True):
                changes.append((rows.pop(number), -1))
            new = draw(st.lists(ROWS, max_size=5))
            changes += [(row, 1) for row in new]
            rows += new
            epoch[name] = draw(st.permutations(changes))
        epoch["log"] = [(row, 1) for row in draw(st.lists(LOG_ROWS, max_size=5))]
        made.append(epoch)
    return made


@st.composite
def relations(draw: Draw, depth: int = 4) -> Relation:
    """Draw a relation; one that was drawn before may be used again, so that it has several consumers."""
    pool: list[tuple[Relation, int]] = [(A, 12), (B, 12), (LATEST, 12)]
    relation, size = draw(st.sampled_from(pool))
    for _ in range(draw(st.integers(1, depth))):
        relation, size = draw(_over(relation, size, pool))
        pool.append((relation, size))
    return relation


@st.composite
def _over(draw: Draw, given: Relation, size: int, pool: list[tuple[Relation, int]]) -> tuple[Relation, int]:
    kinds = ["project", "filter", "aggregate", "distinct", "top", "union", "sets", "join", "join"]
    kind = draw(st.sampled_from(kinds))
    if kind == "project":
        return draw(_projected(given)), size
    if kind == "filter":
        return draw(_filtered(given)), size
    if kind == "aggregate":
        return draw(_aggregated(given)), size
    if kind == "distinct":
        return Distinct(given), size
    if kind == "top":
        return draw(_top(given)), size
    other, more = draw(st.sampled_from(pool))
    if kind in ("union", "sets"):
        found = _aligned(given, other)
        if found is None:
            return Distinct(given), size
        left, right = found
        if kind == "union":
            return Union((left, right) if draw(st.booleans()) else (left, right, left)), 2 * size + more
        made = draw(st.sampled_from([Except, Intersect]))
        return made(left, right, draw(st.booleans())), size
    if size * more > _MOST_ROWS:
        return draw(_aggregated(given)), size
    return draw(_joined(given, other)), size * more // 2 + size + more


@st.composite
def _projected(draw: Draw, given: Relation) -> Relation:
    names = draw(st.lists(st.sampled_from(given.schema.names), min_size=1, max_size=4, unique=True))
    columns = []
    for number, name in enumerate(names):
        kind = given.schema.types[name]
        computed = {"int": f"{name} % 3", "string": f"coalesce({name}, 'none')", "boolean": f"NOT {name}"}.get(
            kind, name
        )
        columns.append((f"c{number}", computed if draw(st.booleans()) else name))
    return Project(given, tuple(columns))


@st.composite
def _filtered(draw: Draw, given: Relation) -> Relation:
    known = [name for name in given.schema.names if given.schema.types[name] in _CONDITIONS]
    if not known:
        return Filter(given, f"{given.schema.names[0]} IS NOT NULL")
    name = draw(st.sampled_from(known))
    return Filter(given, _CONDITIONS[given.schema.types[name]].format(name))


@st.composite
def _aggregated(draw: Draw, given: Relation) -> Relation:
    names = given.schema.names
    keys = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    rest = [name for name in names if name not in keys]
    chosen = draw(st.lists(st.sampled_from(rest), max_size=3, unique=True)) if rest else []
    aggregates = [("g0", "count(*)")]
    for number, name in enumerate(chosen, 1):
        kind = given.schema.types[name]
        calls = _DECIMALS if kind.startswith("decimal") else _AGGREGATES[kind]
        if kind == "decimal(38,2)":
            calls = calls[1:]
        aggregates.append((f"g{number}", draw(st.sampled_from(calls)).format(name)))
    new = tuple((name, sql) for name, sql in aggregates if name not in keys)
    return Aggregate(given, tuple(keys), new or (("gg", "count(*)"),))


@st.composite
def _top(draw: Draw, given: Relation) -> Relation:
    names = given.schema.names
    keys = tuple(draw(st.lists(st.sampled_from(names), max_size=1)))
    by = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    order = tuple(
        (name, draw(st.sampled_from(["asc", "desc"])), draw(st.sampled_from(["first", "last"]))) for name in by
    )
    rank = draw(st.sampled_from([None, "rank_"])) if "rank_" not in names else None
    ties = draw(st.sampled_from(["row_number", "rank", "dense_rank"]))
    return Top(given, keys, draw(st.integers(1, 3)), order, rank, ties)


@st.composite
def _joined(draw: Draw, left: Relation, right: Relation) -> Relation:
    both = [
        (a.name, b.name)
        for a in left.schema
        for b in right.schema
        if a.type == b.type and a.type in ("int", "string", "bigint", "double", "decimal(10,2)", "timestamp")
    ]
    on = draw(st.lists(st.sampled_from(both), min_size=1, max_size=2, unique=True)) if both else []
    if len(on) == 2 and (on[0][0] == on[1][0] or on[0][1] == on[1][1]):
        on = on[:1]
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])) if on else "inner"
    suffix = "_r"
    while {f"{name}{suffix}" for name in right.schema.names} & {*left.schema.names, *right.schema.names}:
        suffix += "r"
    made = Join(left, right, tuple(on), how, None, suffix)
    known = [field for field in made.pair if field.type in _CONDITIONS]
    if not known or draw(st.booleans()):
        return made
    one = draw(st.sampled_from(known))
    return Join(left, right, tuple(on), how, _CONDITIONS[one.type].format(one.name), suffix)


def _aligned(left: Relation, right: Relation) -> tuple[Relation, Relation] | None:
    """Return two relations with the same columns: as many as have the same types."""
    columns: list[tuple[Field, Field]] = []
    rest = [*right.schema]
    for mine in left.schema:
        if found := next((one for one in rest if one.type == mine.type), None):
            rest.remove(found)
            columns.append((mine, found))
    if not columns:
        return None
    some = columns[:3]
    names = [f"u{number}" for number in range(len(some))]
    return (
        Project(left, tuple((name, pair[0].name) for name, pair in zip(names, some, strict=True))),
        Project(right, tuple((name, pair[1].name) for name, pair in zip(names, some, strict=True))),
    )
