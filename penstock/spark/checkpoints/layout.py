"""What a checkpoint's files mean, for those who read it without the pipeline's code: `layout.json` beside them.

Spark numbers sources and stateful operators by their places in its plan; here these get back the names that the
pipeline's author gave.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.aggregates import state_type
from penstock.errors import CheckpointDamaged, NotSerializable
from penstock.folders import Folder
from penstock.masking import masked_text
from penstock.plan import codec
from penstock.plan.explain import explain
from penstock.plan.graph import Graph, stateful_above
from penstock.plan.joins import Join, JoinAsof
from penstock.plan.lags import lag_us
from penstock.plan.node import Node
from penstock.plan.pace import Pace
from penstock.plan.partials import halves, held_columns
from penstock.plan.process import KeyedProcess
from penstock.plan.state_calls import state_calls
from penstock.plan.stateful import Aggregate, Deduplicate, Distinct, Grouped, Reduce, Top
from penstock.spark.lowering.marks import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.lowering.compile import Query

FILE = "layout.json"


@dataclass(frozen=True)
class Operator:
    """A stateful operator: its node, and how state holds it.

    `merges` are the values of a group in their order, `finals` results over them; `folded` are accumulators of Python
    with their types; `running` if a key has one accumulator for all time; `attributes` are those of a process function;
    `held` are the partial results of a window that buckets of keys hold; `lag_us` is how much later times are kept;
    `calls` are the aggregate calls of a group that Spark aggregates alone.
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


@dataclass(frozen=True)
class QueryLayout:
    """One query: its sources and operators in Spark's order, its sinks in ours.

    `rejected` is the pipeline's sink of rejected rows, `mark` what the query's watermark is made of.
    """

    sources: list[str]
    sinks: list[str]
    operators: list[Operator]
    rejected: str | None = None
    mark: Mark = field(default_factory=Mark)

    def renamed(self, names: Mapping[str, str]) -> QueryLayout:
        """Return the same with other names of nodes."""
        return replace(self, operators=[replace(one, node=names.get(one.node, one.node)) for one in self.operators])

    def by_source(self, offsets: Sequence[Any]) -> dict[str, Any]:
        """Give Spark's offsets the names of their sources; their numbers, where no run has noted which is whose."""
        return dict(zip(self.sources or map(str, range(len(offsets))), offsets, strict=False))


UNKNOWN = QueryLayout([], [], [])


@dataclass(frozen=True)
class Layout:
    """All that `layout.json` holds."""

    explain: str = ""
    plan: Any = None
    queries: dict[str, QueryLayout] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str]) -> Layout:
        """Return the same with other names of nodes."""
        return replace(self, queries={name: query.renamed(names) for name, query in self.queries.items()})

    def operators(self, query: str) -> int:
        """Return how many stateful operators a query has; 0 if no run has noted it."""
        return len(self.queries.get(query, UNKNOWN).operators)


def keep_layout(folder: Folder, layout: Layout) -> None:
    """Write it, unless it is there."""
    data = json.dumps(asdict(layout), indent=1).encode()
    if folder.read(FILE) != data:
        folder.write(FILE, data)


def read_layout(folder: Folder) -> Layout:
    """Return it; an empty one where a run has not written any."""
    data = folder.read(FILE)
    if data is None:
        return Layout()
    try:
        found = json.loads(data)
        return Layout(found["explain"], found["plan"], {name: _query(one) for name, one in found["queries"].items()})
    except (ValueError, TypeError, KeyError) as error:
        message = f"{folder}/{FILE} cannot be read: {error!r}"
        raise CheckpointDamaged(message, hint="remove it: the next run writes it again") from error


def layout(name: str, graph: Graph, lane: str, pace: Pace, queries: dict[str, QueryLayout]) -> Layout:
    """Return the layout of a pipeline."""
    try:
        plan = json.loads(codec.to_json(name, graph, pace))
    except NotSerializable:
        plan = None
    return Layout(masked_text(explain(name, graph, lane, pace)), plan, queries)


def query_layout(query: Query) -> QueryLayout:
    """Return the layout of one query, which is a union of frames."""
    graph = query.context.graph
    sources = [name for frame in query.frames for name in sources_of(frame)]
    sinks = [graph.own_name(write) for write in (*query.outputs, *query.asides)]
    operators = [_lagging(node, graph) for write in query.outputs for node in stateful_above(write)]
    rejected = graph.rejected_to.name if graph.rejected_to else None
    return QueryLayout(sources, sinks, operators, rejected, query.context.whole_mark)


def sources_of(frame: DataFrame) -> list[str]:
    """Return the sources of a streaming frame in the order of Spark's offsets; one may stand there twice."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(number) for number in range(leaves.size()))
    names = (leaf.sourceName() for leaf in found if leaf.getClass().getSimpleName() == "StreamingRelationV2")
    return [name.removeprefix("penstock-") for name in names]


def _lagging(node: Node, graph: Graph) -> Operator:
    return replace(_operator(node, graph), lag_us=0 if node.bucketed else lag_us(node))


def _operator(node: Node, graph: Graph) -> Operator:
    keys = list(node.keys) if isinstance(node, Grouped | Deduplicate | KeyedProcess) else []
    if isinstance(node, Distinct):
        keys = list(node.schema.names)
    if isinstance(node, Join | JoinAsof):
        keys = [left for left, _ in node.on]
    about = (graph.own_name(node), node.kind, node.detail, keys)
    if isinstance(node, KeyedProcess):
        return Operator(*about, attributes=list(node.declared.states))
    if not isinstance(node, Grouped):
        return Operator(*about)
    window = str(node.window) if node.window else None
    if node.bucketed:
        return Operator(*about, window, held=held_columns(node))
    if isinstance(node, Top):
        return Operator(*about, window)
    if isinstance(node, Reduce):
        row = state_type(node.input.schema)
        return Operator(*about, window, folded=[["row", row]]) if window else Operator(*about, running=["row"])
    assert isinstance(node, Aggregate)
    if node.python and not window:
        return Operator(*about, running=list(node.python))
    split = halves(node)
    if isinstance(split, str):
        return Operator(*about, window, calls=state_calls(node.aggregates, node.input.schema))
    folded = [[name, state_type(node.python[name].state)] for name in split.folded]
    merges, finals = [list(one) for one in split.merges], [list(one) for one in split.finals]
    return Operator(*about, window, merges, finals, folded)


def _query(found: dict[str, Any]) -> QueryLayout:
    mark = found.get("mark") or {"times": [], "allowed_us": 0}
    times = tuple((key, delay) for key, delay in mark["times"])
    operators = [Operator(**one) for one in found["operators"]]
    about = (found["sources"], found["sinks"], operators, found.get("rejected"))
    return QueryLayout(*about, Mark(times, mark["allowed_us"], mark.get("first_us", 0)))
