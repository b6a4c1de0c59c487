"""The layout of a checkpoint, `layout.json`: what Spark's numbers of sources and operators mean.

Spark numbers sources and stateful operators by their positions in its plan. The layout has their names in the pipeline,
so that a checkpoint can be read without the pipeline's code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from penstock.aggregates import state_type
from penstock.errors import CheckpointDamaged, CheckpointMismatch, NotSerializable
from penstock.masking import masked_text
from penstock.plan import codec
from penstock.plan.graph import Graph, stateful_upstream
from penstock.plan.naming import node_id
from penstock.plan.operators.grouped import Aggregate, Reduce
from penstock.plan.operators.node import Node
from penstock.plan.operators.process import KeyedProcess
from penstock.plan.operators.two_phase_aggregates import held_columns, two_phase
from penstock.plan.operators.views import MaintainView
from penstock.plan.physical.explain import explain
from penstock.plan.physical.plan import PhysicalPlan
from penstock.plan.physical.watermark_lag import lag_us
from penstock.plan.sql_expressions.expression import state_calls
from penstock.spark.tasks.node_watermarks import WatermarkSpec
from penstock.storage.folders import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.lowering.compile import Query

FILE = "layout.json"


@dataclass(frozen=True)
class Operator:
    """A stateful operator: its node, and the format of its state.

    `merges` are the values of a two-phase aggregate in their order, `finals` the results over them; `folded` are Python
    accumulators with their types, `running` those of aggregates without a window; `attributes` are those of a process
    function; `held` are the partial results of a window in buckets of keys; `lag_us` is added to the times in Spark's
    state; `calls` are the calls of an aggregate that Spark computes in one phase; `columns` are those of a view.
    """

    node: str
    kind: str
    detail: str
    keys: list[str]
    window: str | None = None
    merges: list[list[str]] = field(default_factory=list)
    finals: list[list[str]] = field(default_factory=list)
    folded: list[list[str]] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    attributes: list[str] | None = None
    held: list[str] | None = None
    lag_us: int = 0
    calls: list[list[str]] = field(default_factory=list)
    columns: list[str] | None = None


@dataclass(frozen=True)
class QueryLayout:
    """One query: its sources and operators in Spark's order, its sinks in the pipeline's.

    `rejected` is the pipeline's sink of rejected rows, `mark` has the event times that the query's watermark follows.
    """

    sources: list[str]
    sinks: list[str]
    operators: list[Operator]
    rejected: str | None = None
    mark: WatermarkSpec = field(default_factory=WatermarkSpec)

    def renamed(self, names: Mapping[str, str]) -> QueryLayout:
        """Return the same with other names of nodes."""
        return replace(self, operators=[replace(one, node=names.get(one.node, one.node)) for one in self.operators])

    @property
    def operator_names(self) -> list[str]:
        """The nodes of the operators, in Spark's order."""
        return [one.node for one in self.operators]

    def by_source(self, offsets: Sequence[Any]) -> dict[str, Any]:
        """Return Spark's offsets by the names of their sources; by their numbers if the names are unknown."""
        return dict(zip(self.sources or map(str, range(len(offsets))), offsets, strict=False))


UNKNOWN = QueryLayout([], [], [])


@dataclass(frozen=True)
class Layout:
    """What `layout.json` holds."""

    explain: str = ""
    plan: Any = None
    queries: dict[str, QueryLayout] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str]) -> Layout:
        """Return the same with other names of nodes."""
        return replace(self, queries={name: query.renamed(names) for name, query in self.queries.items()})

    @property
    def known_queries(self) -> dict[str, list[str]]:
        """The queries with the ids of their sinks, in order, and of the nodes whose state they hold.

        A plan keeps these.
        """
        return {
            name: [*(node_id("write", sink) for sink in query.sinks), *(operator.node for operator in query.operators)]
            for name, query in self.queries.items()
        }

    def operators(self, query: str) -> int:
        """Return the number of stateful operators of a query; 0 if it is unknown."""
        return len(self.queries.get(query, UNKNOWN).operators)


def write_layout(folder: Folder, layout: Layout) -> None:
    """Write the layout, unless it is unchanged."""
    data = json.dumps(asdict(layout), indent=1).encode()
    if folder.read(FILE) != data:
        folder.write(FILE, data)


def read_layout(folder: Folder) -> Layout:
    """Return the layout; an empty one if no run has written it."""
    data = folder.read(FILE)
    if data is None:
        return Layout()
    try:
        found = json.loads(data)
        return Layout(
            found["explain"], found["plan"], {name: _query_from_json(one) for name, one in found["queries"].items()}
        )
    except (ValueError, TypeError, KeyError) as error:
        message = f"{folder}/{FILE} cannot be read ({type(error).__name__})"
        hint = (
            "put the file back from a copy; or remove it: the next run writes it again, unless the checkpoint was "
            "migrated and has several queries; if the plan has changed, run the old version once first"
        )
        raise CheckpointDamaged(message, hint=hint) from error


def check_positions(stored: Layout, queries: Mapping[str, QueryLayout]) -> None:
    """Refuse a plan in which Spark would take the offsets or the state of one node for those of another."""
    for name, query in queries.items():
        there = stored.queries.get(name, query)
        for what, before, now in (
            ("sources", there.sources, query.sources),
            ("stateful operators", there.operator_names, query.operator_names),
        ):
            if before != now:
                message = f"query '{name}' has the {what} {', '.join(now)}; the checkpoint has {', '.join(before)}"
                hint = "give them in the order of the checkpoint, or choose another --checkpoint folder"
                raise CheckpointMismatch(message, hint=hint)


def build_layout(plan: PhysicalPlan, graph: Graph, queries: dict[str, QueryLayout]) -> Layout:
    """Return the layout of a pipeline."""
    try:
        logical = json.loads(codec.to_json(plan.pipeline, graph, plan.pace, plan.overload))
    except NotSerializable:
        logical = None
    return Layout(masked_text(explain(plan)), logical, queries)


def query_layout(query: Query) -> QueryLayout:
    """Return the layout of one query, which is a union of frames."""
    graph = query.context.graph
    sources = [name for frame in query.frames for name in sources_of(frame)]
    sinks = [graph.own_name(write) for write in (*query.outputs, *query.asides)]
    operators = [_with_lag(node, graph) for write in query.outputs for node in stateful_upstream(write)]
    rejected = graph.rejected_to.name if graph.rejected_to else None
    return QueryLayout(sources, sinks, operators, rejected, query.context.query_watermark)


def sources_of(frame: DataFrame) -> list[str]:
    """Return the sources of a streaming frame in the order of Spark's offsets; a source may occur twice."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(number) for number in range(leaves.size()))
    names = (leaf.sourceName() for leaf in found if leaf.getClass().getSimpleName() == "StreamingRelationV2")
    return [name.removeprefix("penstock-") for name in names]


def _with_lag(node: Node, graph: Graph) -> Operator:
    return replace(_operator(node, graph), lag_us=0 if node.bucketed else lag_us(node))


def _operator(node: Node, graph: Graph) -> Operator:
    window = str(node.window) if node.window else None
    whole = Operator(graph.own_name(node), node.kind, node.detail, list(node.state_keys), window)
    if node.bucketed and node.window is not None:
        return replace(whole, held=held_columns(node))
    return replace(whole, **_values(node))


@singledispatch
def _values(node: Node) -> dict[str, Any]:
    """Say how Spark's state holds the values of an operator; not at all, if it holds whole rows."""
    return {}


@_values.register
def _process_values(node: KeyedProcess) -> dict[str, Any]:
    return {"attributes": list(node.declared.states)}


@_values.register
def _view_values(node: MaintainView) -> dict[str, Any]:
    return {"keys": list(node.key), "columns": list(node.relation.schema.names)}


@_values.register
def _reduce_values(node: Reduce) -> dict[str, Any]:
    return {"folded": [["row", state_type(node.input.schema)]]} if node.window else {"running": ["row"]}


@_values.register
def _aggregate_values(node: Aggregate) -> dict[str, Any]:
    if node.python and not node.window:
        return {"running": list(node.python)}
    split = two_phase(node)
    if isinstance(split, str):
        return {"calls": state_calls(node.aggregates, node.input.schema)}
    return {
        "merges": [list(one) for one in split.merges],
        "finals": [list(one) for one in split.finals],
        "folded": [[name, state_type(node.python[name].state)] for name in split.folded],
    }


def _query_from_json(found: dict[str, Any]) -> QueryLayout:
    mark = found.get("mark") or {"times": [], "allowed_us": 0}
    times = tuple((key, delay) for key, delay in mark["times"])
    operators = [Operator(**one) for one in found["operators"]]
    common = (found["sources"], found["sinks"], operators, found.get("rejected"))
    return QueryLayout(*common, WatermarkSpec(times, mark["allowed_us"], mark.get("first_us", 0)))
