"""Which nodes may follow which: what would lose rows, or never run, is refused when a pipeline is built."""

from __future__ import annotations

from penstock.durations import span_text
from penstock.errors import BadJoin, BadWindow, MissingSink, PipelineError, UpdatingStream
from penstock.plan.graph import Graph, aside, upstream
from penstock.plan.lags import hidden_joins, lag_us, unbounded_join, uses_event_time
from penstock.plan.node import Node
from penstock.plan.nodes import EventTime, Side
from penstock.plan.time_range import time_range
from penstock.windows import YEAR_US

# Watermarks are behind by the lag also at the end of input, which is declared a year after the last event time.
LONGEST_LAG_US = YEAR_US // 2


def check_chains(graph: Graph) -> None:
    """Raise a PipelineError for a node that cannot stand where it stands."""
    if all(aside(write) for write in graph.writes):
        message = "only late rows have an output, so nothing would be read"
        raise MissingSink(message, hint="give the results that they are too late for a sink as well")
    for node in graph.nodes:
        _check_times(node, graph)
        _check_final_before(node, graph)
        _check_late(node, graph)
        _check_joined(node, graph)


def _check_times(node: Node, graph: Graph) -> None:
    """Refuse spans that leave no event time whose windows and joins lie within the years 1 to 9999."""
    if isinstance(node, EventTime) and (times := time_range(node, graph.nodes)).first_us >= times.end_us:
        message = "no event time is left: the windows, intervals, delays and lateness after it add up to too much"
        raise BadWindow(message, node=graph.label(node), hint="all of time is the years 1 to 9999; make them shorter")


def _check_final_before(node: Node, graph: Graph) -> None:
    """State over all time cannot follow a window: in one query Spark would show it results that are not final.

    Buckets of keys give final results in either mode.
    """
    if not node.stateful or not node.updating:
        return
    final = next((one for one in upstream(node) if one.waits and not one.bucketed and one != node), None)
    if final is not None:
        message = f"its results are updated, but {graph.label(final)} before it has to wait for final ones"
        hint = "give it a window too, or write the final results to a topic and aggregate them in a second pipeline"
        raise UpdatingStream(message, node=graph.label(node), hint=hint)


def _check_late(node: Node, graph: Graph) -> None:
    """Late rows are handled epoch by epoch, a few at a time: nothing can be kept, or wait, over several."""
    if isinstance(node, Side) or aside(node) is None or (not node.stateful and len(node.inputs) <= 1):
        return
    message = "it stands behind late rows, which only stateless nodes of one input can follow"
    hint = "write them to a topic, and read that in a second pipeline"
    raise PipelineError(message, node=graph.label(node), hint=hint)


def _check_joined(node: Node, graph: Graph) -> None:
    """Results of a join without a bound in time are of any time; those of others are behind by what it waits for."""
    if not uses_event_time(node):
        return
    if join := unbounded_join(node):
        why = 'whose within="unbounded" gives rows of any time'
        message = f"it uses event time downstream of {graph.label(join)}, {why}"
        hint = "aggregate over all time, use a count window, leave out event_time() on the left, or give within= a span"
        raise BadJoin(message, node=graph.label(node), hint=hint)
    if lag_us(node) > LONGEST_LAG_US:
        joins = hidden_joins(node)
        old, why = span_text(sum(one.lag_us for one in joins)), ", ".join(map(graph.label, joins))
        message = f"it uses event time, and its rows may be {old} old because of {why}"
        hint = "shorten within=, or write the results before it to a topic, and read that in a second pipeline"
        raise BadJoin(message, node=graph.label(node), hint=hint)
