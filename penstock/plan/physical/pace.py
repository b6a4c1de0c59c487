"""Paces: latency against throughput, what each requires of a pipeline, and what it guarantees.

Real-time has no epochs, and so no staging of rows, no final windows and no Python. Each rule names the node that it
refuses and the alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from typing import Literal, get_args

from penstock.contracts import KafkaConnectable, Sink
from penstock.errors import BadValue, PaceRefused, choices
from penstock.plan.graph import Graph, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.row_expressions import fallible_expressions
from penstock.plan.operators.stateless import Read, Write
from penstock.schema import Schema

Pace = Literal["throughput", "fast", "realtime"]
PACES: tuple[Pace, ...] = get_args(Pace)
PROMISES: dict[Pace, str] = {
    "throughput": "epochs as large as pays; the guarantee of each sink is below",
    "fast": "epochs as short as can be; the guarantee of each sink is below",
    "realtime": (
        "no epochs, rows leave at once; at least once: a crash repeats what came since the last batch "
        "(realtime_batch); late rows are counted, not kept"
    ),
}
# At the fast pace a backlog is drained in epochs that still take about a second.
FAST_ROWS = 100_000
FORMATS = ("json", "raw")
TYPES = (
    *("string", "boolean", "tinyint", "smallint", "int", "bigint"),
    *("float", "double", "date", "timestamp", "timestamp_ntz"),
)
_OR_FAST = 'or choose pace="fast"'
Rule = Callable[[Node, Graph], "tuple[str, str] | None"]


def check_pace(pace: str, graph: Graph) -> None:
    """Raise PaceRefused if a pipeline cannot run at this pace, with the node and the alternatives."""
    if pace not in PACES:
        message = f"unknown pace {pace!r}"
        raise BadValue(message, hint=choices("paces", PACES, str(pace)))
    if pace != "realtime":
        return
    rules = ((node, rule(node, graph)) for node in graph.nodes for rule in _RULES)
    broken = [(graph.label(node), *found) for node, found in rules if found is not None]
    _refuse([*broken, *_rejected(graph)])


def runs_without_python(graph: Graph) -> bool:
    """Return whether short epochs need no Python: as at real-time, and without late rows, which Spark miscounts."""
    try:
        check_pace("realtime", graph)
    except PaceRefused:
        return False
    return not graph.event_times


def _rejected(graph: Graph) -> Iterator[tuple[str, str, str]]:
    sink = graph.rejected_to
    if sink is not None and not is_topic(sink):
        yield "rejected_to", f"'{sink.name}' is not a topic", "send rejected rows to a topic"
    if sink is not None and (asked := _asked(sink)):
        yield "rejected_to", f"it is written at least once, not {asked}", "leave guarantee= out"


def _refuse(broken: Sequence[tuple[str, str, str]]) -> None:
    """Raise the first refusal; its hint has the others, so that one attempt shows them all."""
    if not broken:
        return
    (node, why, choice), *others = broken
    message = f'pace="realtime" cannot run it: {why}'
    hint = f"{choice}, {_OR_FAST}" + "".join(f"\n  also {label}: {why}; {do}" for label, why, do in others)
    raise PaceRefused(message, node=node, hint=hint)


def _only_sparks(node: Node, graph: Graph) -> tuple[str, str] | None:
    if node.functions:
        return "Spark's real-time mode calls no Python", "write it in SQL"
    if node.not_realtime is not None:
        return node.not_realtime
    if node.bucketed:
        return "Spark has no such window, and its real-time mode calls no Python", 'use emit="updates" and event time'
    return None


@singledispatch
def _connects(node: Node, graph: Graph) -> tuple[str, str] | None:
    """Sources and sinks are topics that Spark itself can parse and write."""
    return None


@_connects.register
def _from_topics(node: Read, graph: Graph) -> tuple[str, str] | None:
    spec = node.source.spec() or {}
    if not is_topic(node.source):
        return f"{type(node.source).__name__} is not a topic", "read a topic"
    if spec["format"] not in FORMATS:
        return f"format {spec['format']!r} is parsed by Python", f"send {' or '.join(FORMATS)}"
    if spec["on_loss"] != "fail":
        return "lost records would not be counted", 'use on_loss="fail"'
    return _readable(Schema(spec["schema"])) if spec["format"] == "json" else None


def _readable(schema: Schema) -> tuple[str, str] | None:
    for field in schema:
        if field.type not in TYPES:
            why = f"column '{field.name}' is {field.type}, and only plain types are parsed by Spark as Penstock does"
            return why, f"declare one of {', '.join(TYPES)}"
        if set(field.name) & set("\"'?"):
            return f"column {field.name!r} has a quote or a question mark in its name", "rename it"
    return None


@_connects.register
def _to_topics(node: Write, graph: Graph) -> tuple[str, str] | None:
    if not is_topic(node.sink):
        return f"{type(node.sink).__name__} is not a topic", "write a topic"
    if (node.sink.spec() or {})["format"] not in FORMATS:
        return f"format {(node.sink.spec() or {})['format']!r} is written by Python", f"write {' or '.join(FORMATS)}"
    if asked := _asked(node.sink):
        return f"it is written at least once, not {asked}", 'choose guarantee="at_least_once"'
    return None


def _limits(node: Node, graph: Graph) -> tuple[str, str] | None:
    if node.realtime_limits:
        return node.realtime_limits[0]
    if node.late_to is not None:
        return "late rows are counted and not kept", "leave late_to out"
    stateful = [one for one in upstream(node) if one != node and one.stateful]
    if node.stateful and stateful:
        return (
            f"it follows {graph.label(stateful[0])}: only one stateful node is possible",
            "write a topic between them",
        )
    return None


def _rejects_no_sql(node: Node, graph: Graph) -> tuple[str, str] | None:
    """A row on which SQL fails is rejected by a task's Python; here it could only stop the job."""
    risky = fallible_expressions(node) if graph.rejected_to is not None else ()
    if not risky:
        return None
    why = f'"{risky[0]}" can fail on a row, and only rows that do not parse go to rejected_to'
    return why, "use the try_ form, which gives null, or leave rejected_to out: then such a row stops the job"


def _asked(sink: Sink) -> str | None:
    """Return the requested guarantee, if it is not at-least-once."""
    asked = (sink.spec() or {}).get("guarantee")
    return None if asked in (None, "at_least_once") else str(asked).replace("_", " ")


def is_topic(connector: object) -> bool:
    """Only topics have options for Spark's own connector."""
    return isinstance(connector, KafkaConnectable)


_RULES: tuple[Rule, ...] = (_only_sparks, _connects, _limits, _rejects_no_sql)
