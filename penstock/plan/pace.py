"""Paces: how soon rows leave, what that asks of a pipeline, and what it promises.

Real-time has no epochs, and so nothing that ends one: no staging of rows aside, no final windows, no Python. Each rule
names the node that stands in the way and the choices that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

from penstock.contracts import Sink
from penstock.errors import BadValue, PaceRefused, choices
from penstock.plan.graph import Graph, upstream
from penstock.plan.node import Node
from penstock.plan.nodes import Drop, EventTime, Filter, Read, Rename, Select, WithColumns, Write
from penstock.plan.row_expressions import fallible
from penstock.plan.stateful import Aggregate, Deduplicate
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
FORMATS = ("json", "raw")
TYPES = (
    *("string", "boolean", "tinyint", "smallint", "int", "bigint"),
    *("float", "double", "date", "timestamp", "timestamp_ntz"),
)
_OR_FAST = 'or choose pace="fast"'
_SPARKS_OWN = (Read, Select, WithColumns, Filter, Drop, Rename, EventTime, Aggregate, Write)
Rule = Callable[[Node, Graph], "tuple[str, str] | None"]


def check_pace(pace: str, graph: Graph) -> None:
    """Raise if a pipeline cannot keep the pace: at which node, and what can be done."""
    if pace not in PACES:
        message = f"pace={pace!r} is not known"
        raise BadValue(message, hint=choices("paces", PACES, str(pace)))
    if pace != "realtime":
        return
    rules = ((node, rule(node, graph)) for node in graph.nodes for rule in _RULES)
    broken = [(graph.label(node), *found) for node, found in rules if found is not None]
    _refuse([*broken, *_rejected(graph)])


def in_spark_alone(graph: Graph) -> bool:
    """Say whether short epochs can do without Python: as at real-time, and without late rows, which Spark miscounts."""
    timed = any(isinstance(node, EventTime) for node in graph.nodes)
    try:
        check_pace("realtime", graph)
    except PaceRefused:
        return False
    return not timed


def _rejected(graph: Graph) -> Iterator[tuple[str, str, str]]:
    sink = graph.rejected_to
    if sink is not None and not _is_topic(sink):
        yield "rejected_to", f"'{sink.name}' is no topic", "send rejected rows to a topic"
    if sink is not None and (asked := _asked(sink)):
        yield "rejected_to", f"it is written at least once, not {asked}", "leave guarantee= out"


def _refuse(broken: Sequence[tuple[str, str, str]]) -> None:
    """Raise the first of all that stands in the way; the hint has the others, so that one try shows them all."""
    if not broken:
        return
    (node, why, choice), *others = broken
    message = f'pace="realtime" cannot run it: {why}'
    hint = f"{choice}, {_OR_FAST}" + "".join(f"\n  also {label}: {why}; {do}" for label, why, do in others)
    raise PaceRefused(message, node=node, hint=hint)


def _only_sparks(node: Node, graph: Graph) -> tuple[str, str] | None:
    if node.functions:
        return "Spark's real-time mode calls no Python", "write it in SQL"
    if isinstance(node, Deduplicate):
        why = "Spark's own deduplication compares rows with the watermark, so other rows would be dropped"
        return why, "deduplicate where the topic is read"
    if not isinstance(node, _SPARKS_OWN):
        return f"Spark's real-time mode has no {node.kind}", "leave it out"
    if node.bucketed:
        return "Spark has no such window, and its real-time mode calls no Python", 'use emit="updates" and event time'
    return None


def _from_topics(node: Node, graph: Graph) -> tuple[str, str] | None:
    if not isinstance(node, Read):
        return None
    spec = node.source.spec() or {}
    if not _is_topic(node.source):
        return f"{type(node.source).__name__} is no topic", "read a topic"
    if spec["format"] not in FORMATS:
        return f"format {spec['format']!r} is parsed by Python", f"send {' or '.join(FORMATS)}"
    if spec["on_loss"] != "fail":
        return "what is lost would not be counted", 'use on_loss="fail"'
    return _readable(Schema(spec["schema"])) if spec["format"] == "json" else None


def _readable(schema: Schema) -> tuple[str, str] | None:
    for field in schema:
        if field.type not in TYPES:
            why = f"column '{field.name}' is {field.type}, and only plain types are parsed by Spark as Penstock does"
            return why, f"declare one of {', '.join(TYPES)}"
        if set(field.name) & set("\"'?"):
            return f"column {field.name!r} has a quote or a question mark in its name", "send another name"
    return None


def _to_topics(node: Node, graph: Graph) -> tuple[str, str] | None:
    if not isinstance(node, Write):
        return None
    if not _is_topic(node.sink):
        return f"{type(node.sink).__name__} is no topic", "write a topic"
    if (node.sink.spec() or {})["format"] not in FORMATS:
        return f"format {(node.sink.spec() or {})['format']!r} is written by Python", f"write {' or '.join(FORMATS)}"
    if asked := _asked(node.sink):
        return f"it is written at least once, not {asked}", 'choose guarantee="at_least_once"'
    return None


def _updates_only(node: Node, graph: Graph) -> tuple[str, str] | None:
    if isinstance(node, Aggregate) and not node.updating:
        return "a final window waits for the watermark", 'use window(..., emit="updates") and topic(..., key=...)'
    if getattr(node, "late_to", None) is not None:
        return "late rows are counted and not kept", "leave late_to out"
    before = [one for one in upstream(node) if one != node and one.stateful]
    if node.stateful and before:
        return f"it follows {graph.label(before[0])}: one node with state is all", "write a topic between them"
    return None


def _timed(node: Node, graph: Graph) -> tuple[str, str] | None:
    if isinstance(node, EventTime) and node.input.schema.field(node.column).nullable:
        why = f"'{node.column}' may be null, and rows without a time would vanish"
        return why, f"declare '{node.column} timestamp not null' where it is read"
    if isinstance(node, EventTime) and node.idle_after_us is not None:
        return "idle sources are looked for between epochs", "leave idle_after out"
    return None


def _rejects_no_sql(node: Node, graph: Graph) -> tuple[str, str] | None:
    """A row on which SQL fails is put aside by a task's Python; here it could only stop the job."""
    risky = fallible(node) if graph.rejected_to is not None else ()
    if not risky:
        return None
    why = f'"{risky[0]}" can fail on a row, and only rows that do not parse go to rejected_to'
    return why, "use the try_ form, which gives null, or leave rejected_to out: then such a row stops the job"


def _asked(sink: Sink) -> str | None:
    """Return the guarantee that was asked for, if it is another than the one that there is."""
    asked = (sink.spec() or {}).get("guarantee")
    return None if asked in (None, "at_least_once") else str(asked).replace("_", " ")


def _is_topic(connector: object) -> bool:
    """Topics alone can say how Spark's own connector reads or writes them."""
    return hasattr(connector, "connector_options")


_RULES: tuple[Rule, ...] = (_only_sparks, _from_topics, _to_topics, _updates_only, _timed, _rejects_no_sql)
