"""Fingerprints: what state belongs to, and what a plan was when a checkpoint was written.

Spark accepts a changed window length on an old checkpoint without an error, so state is bound to a fingerprint of what
gives it its meaning: keys and their types, window, delay, lateness and what is merged. Stateless nodes do not count,
nor do the names and places of results: those are computed from the state.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import singledispatch
from types import CodeType
from typing import Any

from penstock.aggregates import Aggregator
from penstock.contracts import Connector, Source
from penstock.durations import span_text
from penstock.plan.graph import Graph, late_output_of, upstream
from penstock.plan.naming import node_id
from penstock.plan.operators.grouped import Aggregate
from penstock.plan.operators.node import BUCKETS, SINCE_LATER, Node
from penstock.plan.operators.two_phase_aggregates import two_phase
from penstock.plan.physical.queries import event_times_of
from penstock.plan.physical.watermark_lag import lag_us
from penstock.plan.relations import Relation
from penstock.process import Process
from penstock.schema import Schema
from penstock.windows import Window


@dataclass(frozen=True)
class Described:
    """What a checkpoint stores about a node.

    `meaning` is what its state depends on, by name; empty if it has none. `does` is for people; `code` is
    a hash of its arguments and of the functions that it calls; `place` is where a sink's rows go. `named` is whether
    its author named it; older checkpoints do not.
    """

    kind: str
    inputs: list[str]
    does: str
    code: str
    meaning: dict[str, str]
    place: str = ""
    named: bool | None = None


def described(graph: Graph) -> dict[str, Described]:
    """Describe a plan, node by node, under their ids."""
    found = {graph.id(node): _described(node, graph) for node in graph.nodes}
    sink = graph.rejected_to
    if sink is not None:
        does = f"rejected rows to {type(sink).__name__}"
        found[node_id("write", sink.name)] = Described("write", [], does, _code(sink), {}, sink.describe_target())
    return found


def fingerprint(node: Node) -> str:
    """Return a short hash of what the node's state depends on: if it changes, the state is incompatible."""
    return _hash(meaning(node))


def fingerprints(graph: Graph) -> dict[str, str]:
    """Return the fingerprint of each stateful node by its name."""
    return {graph.own_name(node): fingerprint(node) for node in graph.stateful}


def skeleton(graph: Graph) -> str:
    """Return the hash of all that Spark's checkpoint depends on: sources, their branches, and state."""
    main = [write for write in graph.writes if late_output_of(write) is None]
    reads = [[graph.own_name(node) for node in upstream(write) if node in graph.reads] for write in main]
    modes = [write.updating for write in main]
    return _hash([reads, modes, fingerprints(graph)])


def meaning(node: Node) -> dict[str, str]:
    """Return what a node's state depends on, by name."""
    if not node.stateful:
        return {}
    held = _held(node)
    if node.over_all_time:
        # No row waits for the watermark, nor expires by it.
        return held
    delays = sorted({time.max_delay_us for time in event_times_of(node)})
    common = {"max_delay": ", ".join(map(span_text, delays))} if delays else {}
    common |= {"buckets": str(BUCKETS)} if node.bucketed else {}
    # The state of Spark's own windows and joins has times that are later by it.
    common |= {"lag": span_text(lag)} if (lag := lag_us(node)) and not node.bucketed else {}
    return {**held, **common}


@singledispatch
def _held(node: Node) -> dict[str, str]:
    """What a node declares of its state."""
    return node.kept


@_held.register
def _held_by_aggregate(node: Aggregate) -> dict[str, str]:
    return {**node.kept, "aggregates": "; ".join(_aggregates(node))}


def _aggregates(node: Aggregate) -> list[str]:
    """What Spark's state holds, in its order: merged partials or whole aggregates, whichever lane made them."""
    split = two_phase(node)
    if isinstance(split, str):
        return [what if isinstance(what, str) else _aggregator(what) for _, what in node.aggregates]
    return [*split.held, *(_aggregator(node.python[name]) for name in split.folded)]


def _aggregator(what: Aggregator) -> str:
    return f"{type(what).__name__}({', '.join(what.inputs)}) {what.state}"


def _described(node: Node, graph: Graph) -> Described:
    inputs = [graph.id(one) for one in node.inputs]
    return Described(node.kind, inputs, node.detail, _code(node), meaning(node), node.target, node.name is not None)


def _code(value: Any) -> str:
    return _hash(_parts(value))


def _parts(value: Any) -> Any:
    """Return what distinguishes two values, the code of functions included; names and inputs of nodes do not count."""
    if isinstance(value, Node):
        own = [part.name for part in fields(value) if part.init and part.name not in ("name", "input", "streams")]
        later = {part.name: part.default for part in fields(value) if part.metadata == SINCE_LATER}
        own = [name for name in own if name not in later or getattr(value, name) != later[name]]
        return [value.kind, [_parts(getattr(value, name)) for name in own]]
    if isinstance(value, Source):
        return [type(value).__name__, value.schema.ddl]
    if isinstance(value, Connector):
        own = [_parts(one) for one in vars(value).values() if callable(one)] if value.spec() is None else []
        return [type(value).__name__, value.spec(), own]
    if isinstance(value, Aggregator):
        steps = [_parts(getattr(value, step)) for step in ("start", "add", "merge", "finish")]
        return [_aggregator(value), value.result, steps]
    if isinstance(value, Process):
        bases = type(value).__mro__[:-2]
        methods = [_parts(one) for base in bases for one in vars(base).values() if inspect.isfunction(one)]
        return [type(value).__qualname__, _parts(Schema(value.output)), methods]
    if isinstance(value, tuple):
        return [_parts(one) for one in value]
    if isinstance(value, Schema):
        return value.ddl
    if isinstance(value, Relation):
        return value.fingerprint
    if value is None or isinstance(value, str | int | float | Window):
        return str(value)
    return _function(value) if callable(value) else type(value).__qualname__


def _function(function: Callable[..., Any]) -> Any:
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return [name, _bytecode(code) if code else None]


def _bytecode(code: CodeType) -> Any:
    return [code.co_code.hex(), code.co_names, [_constant(one) for one in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return _bytecode(value) if isinstance(value, CodeType) else repr(value)


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
