"""Validation of a whole plan: combinations of nodes that would lose rows, or never run, are refused."""

from __future__ import annotations

from penstock.durations import span_text
from penstock.errors import BadJoin, BadWindow, MissingSink, PipelineError, UpdatingStream
from penstock.plan.graph import Graph, late_output_of, upstream
from penstock.plan.operators.node import Node
from penstock.plan.operators.stateless import EventTime
from penstock.plan.physical.watermark_lag import (
    joins_upstream_of_buckets,
    lag_us,
    time_range,
    unbounded_join,
    uses_event_time,
)
from penstock.windows import YEAR_US

# Watermarks are held back by the lag also at the end of input, which is declared a year after the last event time.
LONGEST_LAG_US = YEAR_US // 2


def validate(graph: Graph) -> None:
    """Raise a PipelineError for a node that cannot follow those upstream of it."""
    if all(late_output_of(write) for write in graph.writes):
        message = "only late rows have an output, so nothing would be read"
        raise MissingSink(message, hint="write the main results to a sink as well")
    for time in graph.event_times:
        _check_times(time, graph)
    for node in graph.nodes:
        _check_final_upstream(node, graph)
        _check_late(node, graph)
        _check_joined(node, graph)


def _check_times(node: EventTime, graph: Graph) -> None:
    """Refuse spans that leave no event time whose windows and joins lie within the years 1 to 9999."""
    if (times := time_range(node, graph.nodes)).first_us >= times.end_us:
        message = "no event time is left: the windows, intervals, delays and lateness after it add up to too much"
        raise BadWindow(
            message, node=graph.label(node), hint="event times are in the years 1 to 9999; make them shorter"
        )


def _check_final_upstream(node: Node, graph: Graph) -> None:
    """State over all time cannot follow a window: in one query Spark would show it results that are not final.

    Buckets of keys give final results in either mode.
    """
    if not node.stateful or not node.updating:
        return
    final = next((one for one in upstream(node) if one.waits and not one.bucketed and one != node), None)
    if final is not None:
        message = f"its results are updated, but {graph.label(final)} upstream waits for final ones"
        hint = "give it a window too, or write the final results to a topic and aggregate them in a second pipeline"
        raise UpdatingStream(message, node=graph.label(node), hint=hint)


def _check_late(node: Node, graph: Graph) -> None:
    """Late rows are handled epoch by epoch, a few at a time: no state can span several."""
    if node.side_of is not None or late_output_of(node) is None or (not node.stateful and len(node.inputs) <= 1):
        return
    message = "it is downstream of late rows, where only stateless nodes of one input are possible"
    hint = "write them to a topic, and read that in a second pipeline"
    raise PipelineError(message, node=graph.label(node), hint=hint)


def _check_joined(node: Node, graph: Graph) -> None:
    """Results of a join without a bound in time have any time; those of others are older by what the join waits for."""
    if not uses_event_time(node):
        return
    if join := unbounded_join(node):
        why = 'whose within="unbounded" gives rows of any time'
        message = f"it uses event time downstream of {graph.label(join)}, {why}"
        hint = "aggregate over all time, use a count window, leave out event_time() on the left, or give within= a span"
        raise BadJoin(message, node=graph.label(node), hint=hint)
    if lag_us(node) > LONGEST_LAG_US:
        joins = joins_upstream_of_buckets(node)
        old, why = span_text(sum(one.lag_us or 0 for one in joins)), ", ".join(map(graph.label, joins))
        message = f"it uses event time, and its rows may be {old} old because of {why}"
        hint = "shorten within=, or write its input to a topic, and read that in a second pipeline"
        raise BadJoin(message, node=graph.label(node), hint=hint)
