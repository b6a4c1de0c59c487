"""By which columns the rows of a view's inputs can be divided, so that each bucket computes its part alone.

A relation can be divided by columns if all rows that meet in one of its operators agree in them: the keys of a group,
the keys of a join, the key of `Latest`. The columns are followed back to every input. Where that fails, all rows go
to one bucket, and the reason says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import singledispatch

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

Names = tuple[str, ...]
# The columns of each input.
Division = dict[str, Names]
# Of these types equal values may have different hashes.
_NOT_HASHED = ("float", "double")


@dataclass(frozen=True)
class OneBucket:
    """All rows go to one bucket; `why` says what stands in the way."""

    why: str


def divided(relation: Relation) -> Division | OneBucket:
    """Return the columns by which each input can be divided, or why that is not possible.

    >>> from penstock.schema import Schema
    >>> bids = Latest(Input("bids", Schema("auction bigint, price bigint")))
    >>> divided(Aggregate(bids, ("auction",), (("best", "max(price)"),)))
    {'bids': ('auction',)}
    >>> divided(Aggregate(bids, (), (("best", "max(price)"),)))
    OneBucket(why='aggregate max(price) as best has no key')
    """
    reasons: list[str] = []
    for option in _free(relation):
        if isinstance(option, OneBucket):
            reasons.append(option.why)
        else:
            return option
    return OneBucket(next(iter(reasons), "its keys are float or double, whose equal values may have different hashes"))


@singledispatch
def _free(relation: Relation) -> Iterator[Division | OneBucket]:
    """Yield the ways to divide a relation whatever follows it, the one with most columns first."""
    yield OneBucket(f"{relation.kind} {relation.detail}")


@_free.register
def _free_latest(relation: Latest) -> Iterator[Division | OneBucket]:
    for names in _choices(relation.key or relation.schema.names, relation):
        yield _by(relation, names)


@_free.register(Project)
@_free.register(Filter)
def _free_rows(relation: Project | Filter) -> Iterator[Division | OneBucket]:
    yield from _free(relation.input)


@_free.register
def _free_join(relation: Join) -> Iterator[Division | OneBucket]:
    if not relation.on:
        yield OneBucket("a join without keys compares every pair of rows")
    for lefts in _choices(tuple(left for left, _ in relation.on), relation.left):
        rights = tuple(dict(relation.on)[left] for left in lefts)
        yield _merged([_by(relation.left, lefts), _by(relation.right, rights)])


@_free.register(Aggregate)
@_free.register(Top)
def _free_groups(relation: Aggregate | Top) -> Iterator[Division | OneBucket]:
    if not relation.keys:
        yield OneBucket(f"{relation.kind} {relation.detail} has no key")
    for names in _choices(relation.keys, relation.input):
        yield _by(relation.input, names)


@_free.register(Distinct)
@_free.register(Except)
@_free.register(Intersect)
def _free_sets(relation: Distinct | Except | Intersect) -> Iterator[Division | OneBucket]:
    for names in _choices(relation.schema.names, relation):
        yield _by(relation, names)


@_free.register
def _free_union(relation: Union) -> Iterator[Division | OneBucket]:
    whole: Division | OneBucket = {}
    for part in relation.parts:
        found = [_merged([whole, option]) for option in _free(part)]
        whole = next((one for one in found if not isinstance(one, OneBucket)), found[0])
    yield whole


@singledispatch
def _by(relation: Relation, names: Names) -> Division | OneBucket:
    """Divide a relation by some of its columns."""
    return OneBucket(f"{relation.kind} {relation.detail}")


@_by.register
def _by_input(relation: Input, names: Names) -> Division | OneBucket:
    return {relation.name: names}


@_by.register
def _by_latest(relation: Latest, names: Names) -> Division | OneBucket:
    if relation.key and not {*names} <= {*relation.key}:
        return _not_by(relation, names)
    return _by(relation.input, names)


@_by.register
def _by_project(relation: Project, names: Names) -> Division | OneBucket:
    if not {*names} <= {*relation.carried}:
        computed = [name for name in names if name not in relation.carried]
        return OneBucket(f"{', '.join(computed)} is computed inside of the view")
    return _by(relation.input, tuple(relation.carried[name] for name in names))


@_by.register
def _by_filter(relation: Filter, names: Names) -> Division | OneBucket:
    return _by(relation.input, names)


@_by.register(Aggregate)
@_by.register(Top)
def _by_groups(relation: Aggregate | Top, names: Names) -> Division | OneBucket:
    return _by(relation.input, names) if {*names} <= {*relation.keys} else _not_by(relation, names)


@_by.register
def _by_distinct(relation: Distinct, names: Names) -> Division | OneBucket:
    return _by(relation.input, names)


@_by.register(Union)
@_by.register(Except)
@_by.register(Intersect)
def _by_sets(relation: Union | Except | Intersect, names: Names) -> Division | OneBucket:
    return _merged([_by(part, names) for part in relation.inputs])


@_by.register
def _by_join(relation: Join, names: Names) -> Division | OneBucket:
    """Divide a join by keys; a side that may be missing cannot give them, unless both have the same name."""
    own = {new: old for old, new in relation.right_names.items()}
    lefts, rights = dict(relation.on), {right: left for left, right in relation.on}
    pairs = []
    for name in names:
        if name in relation.left.schema and name in lefts:
            if relation.how in ("right", "full") and name not in relation.shared:
                return OneBucket(f"{name} is missing where a row of the {relation.how} join has no partner")
            pairs.append((name, lefts[name]))
        elif own.get(name) in rights and relation.how in ("inner", "right"):
            pairs.append((rights[own[name]], own[name]))
        else:
            return _not_by(relation, names)
    left, right = _by(relation.left, tuple(a for a, _ in pairs)), _by(relation.right, tuple(b for _, b in pairs))
    return _merged([left, right])


def _choices(names: Names, relation: Relation) -> Iterator[Names]:
    """Yield all columns that can be hashed, and each by itself."""
    types = relation.schema.types
    usable = tuple(name for name in names if types[name] not in _NOT_HASHED)
    if usable:
        yield usable
    if len(usable) > 1:
        yield from ((name,) for name in usable)


def _not_by(relation: Relation, names: Names) -> OneBucket:
    return OneBucket(f"{relation.kind} {relation.detail} is not by {', '.join(names)}")


def _merged(parts: Iterable[Division | OneBucket]) -> Division | OneBucket:
    """Put divisions together; an input that is needed by different columns stands in the way."""
    whole: Division = {}
    for part in parts:
        if isinstance(part, OneBucket):
            return part
        for name, columns in part.items():
            if whole.setdefault(name, columns) != columns:
                return OneBucket(f"{name} is needed by {', '.join(whole[name])} and by {', '.join(columns)}")
    return whole
