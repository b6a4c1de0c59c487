"""Pipelines: a graph of sources, operators and sinks that is run as one job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from penstock import argument_checks as checks
from penstock.connectors.catalog import sink_from_spec, source_from_spec
from penstock.contracts import Sink
from penstock.errors import BadValue, PipelineError, one_of
from penstock.flows import Output
from penstock.plan import codec
from penstock.plan.graph import Graph
from penstock.plan.operators.node import BUCKETS
from penstock.plan.physical.explain import explain, to_dot, to_mermaid
from penstock.plan.physical.overload import Overload, check_overload
from penstock.plan.physical.pace import Pace, check_pace
from penstock.plan.physical.plan import PhysicalPlan
from penstock.plan.physical.planner import physical_plan
from penstock.plan.validation import validate
from penstock.report import Report
from penstock.settings import Settings
from penstock.storage.folders import folder

if TYPE_CHECKING:
    from penstock.spark.runs.runner import Runner

Until = Literal["stopped", "drained", "ended"]


class Pipeline:
    """A graph from sources to sinks, with a name and a pace; checked when it is built.

    `pace="throughput"` makes epochs as large as pays, `"fast"` as short as can be; `"realtime"` hands each row on at
    once, from topic to topic, at least once. A node that cannot run at this pace is an error with the alternatives.
    Under overload, rows wait in their source (`overload="block"`), the oldest are dropped and counted
    (`"drop"`), or they are read into the checkpoint at once (`"spill"`).

    >>> import penstock as ps
    >>> items = ps.from_items([{"word": "a"}, {"word": "b"}, {"word": "a"}], "word string")
    >>> counts = items.key_by("word").aggregate(times="count(*)")
    >>> Pipeline("words", counts.to(ps.collect())).name
    'words'
    """

    def __init__(
        self,
        name: str,
        *outputs: Output,
        rejected_to: Sink | None = None,
        pace: Pace = "throughput",
        overload: Overload = "block",
    ) -> None:
        self.name = checks.name(name, "Pipeline", "a pipeline's name")
        self.pace, self.overload = pace, overload
        checks.optional_sink(rejected_to, f"{name} / rejected_to")
        for output in outputs:
            if not isinstance(output, Output):
                message = f"{checks.shown(output)} is not an output"
                raise BadValue(message, node=name, hint="end a stream with .to(sink) and pass what it returns")
        try:
            self.graph = Graph(tuple(output.node for output in outputs), rejected_to)
            validate(self.graph)
            check_pace(pace, self.graph)
            check_overload(overload, self.graph, pace)
        except PipelineError as error:
            error.node = f"{name} / {error.node}" if error.node else name
            raise

    def paced(self, pace: Pace | None = None, overload: Overload | None = None) -> Pipeline:
        """Return the same pipeline at another pace, or with another overload policy."""
        outputs, rejected_to = map(Output, self.graph.writes), self.graph.rejected_to
        pace, overload = pace or self.pace, overload or self.overload
        return Pipeline(self.name, *outputs, rejected_to=rejected_to, pace=pace, overload=overload)

    def run(
        self,
        *,
        until: Until = "stopped",
        checkpoint: str | Path | None = None,
        settings: Settings | None = None,
        allow_drop: Sequence[str] = (),
    ) -> Report:
        """Run on Spark in this process, and return the report.

        `until="stopped"` runs until a signal; `"drained"` until all input of now is read, leaving windows open in the
        checkpoint; `"ended"` until the sources end, closing all windows. `allow_drop` names nodes whose state may
        be dropped because it is incompatible with the checkpoint.
        """
        run = self.start(until=until, checkpoint=checkpoint, settings=settings, allow_drop=allow_drop)
        try:
            run.wait()
        except KeyboardInterrupt:
            run.stop()
            run.wait()
        return run.report()

    def start(
        self,
        *,
        until: Until = "stopped",
        checkpoint: str | Path | None = None,
        settings: Settings | None = None,
        allow_drop: Sequence[str] = (),
    ) -> Runner:
        """Start on Spark in this process, and return the run at once; it has `stop()`, `wait()` and `report()`."""
        one_of(until, get_args(Until), "until", self.name)
        settings = settings or Settings.load()
        where = folder(checkpoint) if checkpoint else folder(settings.checkpoints) / self.name
        # Plans are built and explained where there is no Java, so Spark is imported only here.
        from penstock.spark.runs.start import start_run

        return start_run(self.name, self.graph, where, settings, until, self.pace, allow_drop, self.overload)

    def explain(self, settings: Settings | None = None) -> str:
        """Return the plan as text: pace, nodes, lanes, queries and the guarantee of each sink."""
        return explain(self.physical_plan(settings))

    def physical_plan(self, settings: Settings | None = None) -> PhysicalPlan:
        """Return how the pipeline would run in a new checkpoint: a value, and as JSON what `explain` prints."""
        settings = settings or Settings.load()
        return physical_plan(
            self.name,
            self.graph,
            lane=settings.lane,
            kafka_reader=settings.kafka_reader,
            pace=self.pace,
            overload=self.overload,
            buckets=settings.state_buckets or BUCKETS,
        )

    def to_dot(self) -> str:
        """Draw the plan for Graphviz."""
        return to_dot(self.name, self.graph)

    def to_mermaid(self) -> str:
        """Draw the plan for Mermaid."""
        return to_mermaid(self.name, self.graph)

    def to_json(self) -> str:
        """Return the plan as JSON; raise NotSerializable if it has Python functions."""
        return codec.to_json(self.name, self.graph, self.pace, self.overload)

    @classmethod
    def from_json(cls, text: str) -> Pipeline:
        """Read a plan that `to_json` wrote."""
        name, outputs, rejected_to, how = codec.from_json(text, source_from_spec, sink_from_spec)
        return cls(name, *map(Output, outputs), rejected_to=rejected_to, **how)  # type: ignore[arg-type]
