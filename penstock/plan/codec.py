"""Plans as JSON, without Python functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from penstock.contracts import Sink, Source
from penstock.errors import BadValue, NotSerializable
from penstock.masking import masked_spec
from penstock.plan.graph import Graph, writes_in

# Their operators are decoded too.
from penstock.plan.operators import deduplication, explode, grouped, joins, views  # noqa: F401
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import Write
from penstock.plan.relations import Relation, relation_from_json, relation_to_json
from penstock.schema import Schema
from penstock.windows import Window

VERSION = 1
FromSpec = Callable[[dict[str, Any]], Any]


def to_json(name: str, graph: Graph, pace: str, overload: str = "block") -> str:
    """Write a plan as JSON, without secrets; node ids are positions in the graph's order."""
    ids = {node: number for number, node in enumerate(graph.nodes)}
    document = {
        "penstock": VERSION,
        "name": name,
        "pace": pace,
        "overload": overload,
        "nodes": [_encode_node(node, ids, graph.label(node)) for node in graph.nodes],
        "rejected_to": _encode(graph.rejected_to, ids, "rejected_to"),
    }
    warnings = {graph.name(node): node.warning for node in graph.nodes if node.warning}
    return json.dumps(document | ({"warnings": warnings} if warnings else {}), indent=2)


def from_json(
    text: str, source_from_spec: FromSpec, sink_from_spec: FromSpec
) -> tuple[str, tuple[Write, ...], Sink | None, dict[str, str]]:
    """Read a plan: its name, its outputs, the sink of rejected rows, and pace and overload policy."""
    try:
        document = json.loads(text)
        version = document["penstock"]
        if version != VERSION:
            message = f"the plan has version {version}, and this Penstock reads version {VERSION}"
            raise BadValue(message, hint="write it again with to_json()")
        built: list[Node] = []
        for entry in document["nodes"]:
            built.append(_decode_node(entry, built, source_from_spec, sink_from_spec))
        rejected = document["rejected_to"]
        outputs = writes_in(built)
        rejected_to = sink_from_spec(rejected["sink"]) if rejected else None
        how = {key: document[key] for key in ("pace", "overload") if key in document}
        return document["name"], outputs, rejected_to, how
    except (KeyError, TypeError, IndexError, json.JSONDecodeError) as error:
        message = f"this is not a plan: {error!r}"
        raise BadValue(message, node="from_json", hint="pass the result of Pipeline.to_json()") from error


def _kinds(base: type[Node] = Node) -> dict[str, type[Node]]:
    """Return every operator that is defined, also those of users, by its kind."""
    found = {base.kind: base} if "kind" in vars(base) else {}
    for one in base.__subclasses__():
        found |= _kinds(one)
    return found


def _encode_node(node: Node, ids: dict[Node, int], label: str) -> dict[str, Any]:
    if node.functions:
        message = "it calls Python functions, which cannot be written as JSON"
        raise NotSerializable(message, node=label, hint="submit the file that builds the pipeline instead")
    values = {part.name: getattr(node, part.name) for part in fields(node) if part.init}
    encoded = {key: _encode(value, ids, label) for key, value in values.items() if value is not None}
    return {"kind": node.kind, **encoded}


def _encode(value: Any, ids: dict[Node, int], label: str) -> Any:
    if isinstance(value, Node):
        return {"node": ids[value]}
    if isinstance(value, Source | Sink):
        spec = value.spec()
        if spec is None:
            message = f"{type(value).__name__} '{value.name}' holds Python, which cannot be written as JSON"
            raise NotSerializable(message, node=label, hint="give it a spec(), or submit the file instead")
        return {"source" if isinstance(value, Source) else "sink": masked_spec(spec)}
    if isinstance(value, Window):
        more = [] if value == replace(value, max_us=None, clock="event") else [value.max_us, value.clock]
        return {"window": [value.kind, value.size_us, value.slide_us, value.offset_us, *more]}
    if isinstance(value, Schema):
        return {"schema": value.ddl}
    if isinstance(value, Relation):
        return {"relation": relation_to_json(value)}
    if isinstance(value, tuple):
        return [_encode(part, ids, label) for part in value]
    return value


def _decode_node(entry: dict[str, Any], built: list[Node], source: FromSpec, sink: FromSpec) -> Node:
    values = dict(entry)
    kind = _kinds()[values.pop("kind")]
    return kind(**{key: _decode(value, built, source, sink) for key, value in values.items()})


def _decode(value: Any, built: list[Node], source: FromSpec, sink: FromSpec) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part, built, source, sink) for part in value)
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    match tag:
        case "node":
            return built[content]
        case "source":
            return source(content)
        case "sink":
            return sink(content)
        case "window":
            return Window(*content)
        case "relation":
            return relation_from_json(content)
        case _:
            return Schema(content)
