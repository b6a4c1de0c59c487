"""Promise: at real-time every row leaves at least once, also after kill -9, and a clean stop says what was done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import BadValue, CheckpointMismatch, MissingPart
from penstock.settings import Settings
from tests.connectors.kafka_topics import Topic, fresh
from tests.waiting import wait_for

SECONDS = 180
JOB = """
import penstock as ps

rows = ps.read_topic("{source}", schema="k string not null, n bigint", connection="{log}").named("rows")
even = rows.filter("n % 2 = 0").to(ps.topic("{even}", key="k", connection="{log}"))
sums = rows.key_by("k").aggregate(s="sum(n)", c="count(*)").to(ps.topic("{sums}", key="k", connection="{log}"))
job = ps.Pipeline("job", even, sums, rejected_to=ps.topic("{bad}", connection="{log}"))
"""


@pytest.fixture(autouse=True)
def connector() -> None:
    from penstock.spark.session.jars import fetch

    try:
        fetch("kafka")
    except MissingPart as error:
        pytest.skip(f"Spark's Kafka connector cannot be fetched: {error}")


def document(number: int) -> bytes:
    return json.dumps({"k": f"k{number % 2}", "n": number}).encode()


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.cli", "run", str(folder / "job.py"), "--pace", "realtime"]
    env = os.environ | {"PENSTOCK_REALTIME_BATCH": "1m", "PENSTOCK_PARALLELISM": "1"}
    command += ["--checkpoint", str(folder / "c")]
    with (folder / "said").open("a") as said:
        return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, text=True, env=env)


def until(holds: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    """Wait until something holds; a job of its own starts a JVM first."""
    wait_for(holds, seconds=SECONDS, poll=0.1, while_=lambda: job.poll() is None)


def numbers(topic: Topic) -> list[int]:
    return sorted(json.loads(message.value())["n"] for message in topic.consume())


def counted(topic: Topic) -> dict[str, int]:
    return {row["k"]: row["c"] for row in (json.loads(message.value()) for message in topic.consume())}


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["stopped", "killed"])
def test_rows_leave_at_once_and_none_is_lost(killed: bool, event_log: str, tmp_path: Path) -> None:
    topics = {name: fresh(event_log, name).create(1) for name in ("source", "even", "sums", "bad")}
    (tmp_path / "job.py").write_text(JOB.format(log=event_log, **{name: t.name for name, t in topics.items()}))
    topics["source"].produce([*map(document, range(100)), b"{"])
    job = start(tmp_path)
    try:
        until(lambda: len(numbers(topics["even"])) == 50 and len(topics["bad"].consume()) == 1, job)
        if killed:
            job.send_signal(signal.SIGKILL)
            job.wait()
        topics["source"].produce(map(document, range(100, 200)))
        if killed:
            job = start(tmp_path)
        until(lambda: set(numbers(topics["even"])) == set(range(0, 200, 2)), job)
        until(lambda: counted(topics["sums"]) == {"k0": 100, "k1": 100}, job)
        # A row that was given out before the kill is given out again.
        until(lambda: len(topics["bad"].consume()) == 1 + killed, job)
        assert json.loads(topics["bad"].consume()[-1].value())["position"] == f"{topics['source'].name}/0@100"
        job.send_signal(signal.SIGTERM)
        _feed_until_it_ends(topics["source"], job)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, (tmp_path / "said").read_text()
    told = (tmp_path / "said").read_text().splitlines()
    assert any(line.startswith("epoch 0  rows_in ") for line in told)
    assert any(line.split()[:1] == ["rows"] for line in told)
    _stays_at_its_pace(event_log, topics, tmp_path)


def _feed_until_it_ends(topic: Topic, job: subprocess.Popen[str]) -> None:
    """A batch ends when a row comes."""
    ended = threading.Event()
    threading.Thread(target=lambda: (job.wait(), ended.set()), daemon=True).start()
    while not ended.wait(0.3):
        topic.produce([document(0)])


def _stays_at_its_pace(log: str, topics: dict[str, Topic], folder: Path) -> None:
    scope: dict[str, ps.Pipeline] = {}
    exec((folder / "job.py").read_text(), scope)
    settings = Settings(parallelism=1)
    with pytest.raises(CheckpointMismatch, match='was written at pace="realtime"'):
        scope["job"].start(checkpoint=folder / "c", settings=settings)
    with pytest.raises(BadValue, match="runs this until it is stopped"):
        scope["job"].paced("realtime").start(checkpoint=folder / "c", settings=settings, until="drained")


def test_short_epochs_give_the_same_rows_and_may_follow_large_ones(settings: Settings, tmp_path: Path) -> None:
    rows = ps.from_items([{"k": "a", "n": 1}, {"k": "b", "n": 2}], "k string, n bigint")
    out = ps.collect()
    fast = ps.Pipeline("p", rows.filter("n > 1").to(out), pace="fast")
    fast.paced("throughput").run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    report = fast.run(until="drained", checkpoint=tmp_path / "c", settings=settings)
    assert out.rows == [{"k": "b", "n": 2}]
    assert report.counts["filter"].filtered == 1
