"""Promise: what the job manager shows of each node is what the run itself reports."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.control.api.nodes import Node
from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.nodes import NodeFigures
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.requests.node_views import node_list
from penstock.driver.assignment import Assignment, read_assignment
from penstock.driver.job import DriverJob
from penstock.driver.runtime import Run
from penstock.driver.sampling import sample
from penstock.report import Counts
from penstock.settings import Settings
from tests.conftest import at
from tests.connectors.kafka_topics import Topic, fresh

KINDS = ("used", "filtered", "late", "rejected", "duplicate", "dropped")


def records() -> list[bytes]:
    """Each kind of count, in three epochs: a row that is not JSON, a late one, a repeated one, small ones."""
    rows = [{"k": f"k{n % 3}", "n": n, "ts": at(n)} for n in range(27)]
    rows += [{"k": "k0", "n": 26, "ts": at(26)}, {"k": "late", "n": 100, "ts": at(1)}]
    return [*(json.dumps(row, default=datetime.isoformat).encode() for row in rows), b"{"]


def pipeline(topic: Topic) -> ps.Pipeline:
    stream = ps.read_topic(topic.name, schema="k string, n bigint, ts timestamp", connection=topic.bootstrap)
    events = stream.named("events")
    once = events.filter("n > 2").named("large").event_time("ts", "1s").deduplicate(["n"], "5s").named("once")
    counted = once.key_by("k").window(ps.tumbling("10s")).aggregate(n="count(*)").named("counts")
    return ps.Pipeline("prices", counted.to(ps.collect()))


class OneRun:
    """A runtime that runs the pipeline in this process."""

    def __init__(self, topic: Topic, folder: Path, settings: Settings) -> None:
        self._topic, self._folder, self._settings = topic, folder, settings

    def start(self, assignment: Assignment) -> Run:
        return pipeline(self._topic).start(until="ended", checkpoint=self._folder, settings=self._settings)

    def savepoint(self, assignment: Assignment, name: str) -> dict[str, Any]:
        raise NotImplementedError

    def ended(self, assignment: Assignment) -> None:
        pass


@pytest.fixture(scope="module")
def topic(event_log: str) -> Topic:
    topic = fresh(event_log, "events").create(1)
    topic.produce(records())
    return topic


@pytest.fixture(scope="module")
def events(topic: Topic, tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> list[dict[str, Any]]:
    """What the driver of a real job reports."""
    folder, found, over = tmp_path_factory.mktemp("job"), [], threading.Event()

    def emit(job: str, kind: str, fields: Mapping[str, Any]) -> None:
        found.append({"kind": kind, **fields})

    runtime = OneRun(topic, folder / "checkpoint", replace(settings, epoch_rows=10))
    assignment = read_assignment({"job": "j1", "target": "job.py", "checkpoint": "c"})
    DriverJob(assignment, runtime, folder, emit, over.set, time.time).start()
    assert over.wait(120)
    return found


@pytest.fixture
def nodes(events: list[dict[str, Any]], topic: Topic) -> dict[str, Node]:
    """The nodes as the REST API returns them."""
    newest = [event for event in events if event["kind"] == "epoch"][-1]
    figures = NodeFigures(job="j1", epoch=newest["epoch"], at=1.0, nodes=newest["nodes"])
    plan = {
        "nodes": [
            {"id": one.id, "name": one.name, "kind": one.kind, "title": one.title, "lane": one.lane}
            for one in pipeline(topic).physical_plan().nodes
        ]
    }
    version = Version(job="j1", number=1, entry="job.py", digest="", plan=plan)
    found = node_list(version, Job(id="j1", name="prices", state="RUNNING"), figures)
    return {node.name: node for node in found.items}


def test_the_counts_of_nodes_are_those_of_the_report(events: list[dict[str, Any]], nodes: dict[str, Node]) -> None:
    ended = events[-1]
    assert (ended["kind"], ended["outcome"]) == ("ended", "finished")
    assert {name: node.counts and node.counts.model_dump() for name, node in nodes.items()} == ended["report"]["counts"]
    for name, node in nodes.items():
        assert node.counts is not None
        assert node.counts.rows_in == sum(getattr(node.counts, kind) for kind in KINDS), name


def test_each_kind_of_row_is_counted_where_it_left(nodes: dict[str, Node]) -> None:
    counts = {name: node.counts.model_dump() for name, node in nodes.items() if node.counts}
    assert counts["events"] == Counts(rows_in=30, used=29, rejected=1).as_dict()
    assert counts["large"] == Counts(rows_in=29, used=26, filtered=3).as_dict()
    assert counts["once"] == Counts(rows_in=26, used=24, late=1, duplicate=1).as_dict()
    assert counts["counts"] == Counts(rows_in=24, used=24).as_dict()


def test_stateful_nodes_have_state_and_a_watermark_and_others_have_not(
    events: list[dict[str, Any]], nodes: dict[str, Node]
) -> None:
    epochs = [event for event in events if event["kind"] == "epoch"]
    first = epochs[0]["nodes"]
    assert first["once"]["state_rows"] > 0
    assert first["counts"]["state_bytes"] > 0
    assert first["events"]["state_rows"] is None
    assert epochs[0]["state_rows"] == sum(node["state_rows"] or 0 for node in first.values())
    assert epochs[0]["rows_in_per_s"] == pytest.approx(first["events"]["rate"], rel=0.01)
    assert (nodes["counts"].watermark, nodes["counts"].ended_input) == (None, True)
    assert nodes["events"].backpressure == 0


def test_latencies_are_from_the_timestamps_of_records_to_the_commit(events: list[dict[str, Any]]) -> None:
    measured = [event["latency_ms"] for event in events if event["kind"] == "epoch" and event["rows_in"]]
    assert measured
    for latency in measured:
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] < 600_000


def test_the_newest_records_of_a_topic_are_a_sample_of_its_source(topic: Topic, settings: Settings) -> None:
    found = sample(pipeline(topic), settings, "events", 5)
    assert (found["source"], [row["n"] for row in found["rows"]]) == ("topic", [25, 26, 26, 100])
    assert "1 could not be parsed" in found["note"]
