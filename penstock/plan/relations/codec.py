"""Relations as JSON: a list of operators, inputs first, so that one that is used twice is written once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

from penstock.errors import BadValue
from penstock.plan.relations.groups import Aggregate, Distinct, Top
from penstock.plan.relations.joins import Join
from penstock.plan.relations.relation import Relation
from penstock.plan.relations.rows import Filter, Project
from penstock.plan.relations.sets import Except, Intersect, Union
from penstock.plan.relations.sources import Input, Latest
from penstock.schema import Schema

_KINDS: dict[str, type[Relation]] = {
    one.kind: one for one in (Input, Latest, Project, Filter, Join, Aggregate, Distinct, Top, Union, Except, Intersect)
}


def relation_to_json(relation: Relation) -> list[dict[str, Any]]:
    """Return a relation as values that JSON has; the last one is the relation itself.

    >>> relation_to_json(Filter(Input("bids", Schema("price bigint")), "price > 0"))[1]
    {'kind': 'filter', 'input': {'relation': 0}, 'condition': 'price > 0'}
    """
    ids = {one: number for number, one in enumerate(relation.operators)}
    return [_encoded(one, ids) for one in ids]


def relation_from_json(entries: list[dict[str, Any]]) -> Relation:
    """Return the relation that `relation_to_json` wrote."""
    built: list[Relation] = []
    try:
        for entry in entries:
            values = dict(entry)
            kind = _KINDS[values.pop("kind")]
            built.append(kind(**{key: _decoded(value, built) for key, value in values.items()}))
        return built[-1]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        message = f"this is not a relation: {error!r}"
        raise BadValue(message, node="view", hint="pass the result of relation_to_json()") from error


def fingerprint(relation: Relation) -> str:
    """Return a short hash of a relation."""
    text = json.dumps(relation_to_json(relation), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _encoded(relation: Relation, ids: dict[Relation, int]) -> dict[str, Any]:
    values = {part.name: getattr(relation, part.name) for part in fields(relation) if part.init}  # type: ignore[arg-type]
    return {"kind": relation.kind, **{key: _value(value, ids) for key, value in values.items() if value is not None}}


def _value(value: Any, ids: dict[Relation, int]) -> Any:
    if isinstance(value, Relation):
        return {"relation": ids[value]}
    if isinstance(value, Schema):
        return {"schema": value.ddl}
    return [_value(part, ids) for part in value] if isinstance(value, tuple) else value


def _decoded(value: Any, built: list[Relation]) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(part, built) for part in value)
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    return built[content] if tag == "relation" else Schema(content)
