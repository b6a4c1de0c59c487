"""The cases that each broker goes through, one after the other, each with clients in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.data import Trades
from benchmarks.latency import percentile
from benchmarks.peers import ROOT
from benchmarks.peers.broker import Broker
from benchmarks.results import Result
from penstock.settings import cores

SIZE = 1024
RATE = 1_000
PARTITIONS = (1, 8)
SYMBOLS = 1_000
# Of the latency case: connections are made, code is compiled.
WARM_UP_SECONDS = 2
NO_FIGURES: dict[str, float | None] = {"p50_ms": None, "p99_ms": None}


@dataclass(frozen=True)
class Sizes:
    """How much is measured: records of throughput, seconds of latency, records that Spark reads (0: not at all)."""

    records: int
    seconds: int
    json_records: int
    runs: int


@dataclass(frozen=True)
class Found:
    """What a case gave; equal says that every record was there, once."""

    records: int
    seconds: float
    equal: bool
    extra: dict[str, float | None] = field(default_factory=dict)


class Failed(Exception):
    """A client could not do its part."""


def measure(system: str, broker: Broker, sizes: Sizes, cache: Path) -> Iterator[Result]:
    """Run every case; one that fails is not equal, and says why."""
    for name, case in _cases(sizes, cache).items():
        print(name, end=" ", flush=True)
        broker.watch_memory()
        try:
            found = case(broker.bootstrap)
        except (Failed, KafkaException) as error:
            print(f"failed: {error}")
            found = Found(0, 0.0, False)
        speed = round(found.records / found.seconds) if found.seconds else 0
        extra = NO_FIGURES | found.extra
        yield Result(system, name, speed, round(found.seconds, 3), round(broker.peak_mb), found.equal, extra)


def _cases(sizes: Sizes, cache: Path) -> dict[str, Callable[[str], Found]]:
    cases: dict[str, Callable[[str], Found]] = {}
    for partitions in PARTITIONS:
        cases[f"produce-{partitions}"] = partial(_produce, sizes, partitions)
        cases[f"consume-{partitions}"] = partial(_consume, sizes, partitions)
    cases["latency"] = partial(_latency, sizes)
    if sizes.json_records:
        cases["spark-json"] = partial(_spark, sizes, cache)
    return cases


def _produce(sizes: Sizes, partitions: int, bootstrap: str) -> Found:
    # The first run's topic is read later; the others would only fill the disk.
    answers = []
    for run in range(sizes.runs):
        topic = _create(bootstrap, f"records-{partitions}-{run}", partitions)
        answers.append(_client("produce", bootstrap, topic, partitions=partitions, records=sizes.records, size=SIZE))
        if run:
            _delete(bootstrap, topic)
    return _best(answers, {"records": sizes.records})


def _consume(sizes: Sizes, partitions: int, bootstrap: str) -> Found:
    arguments = {"partitions": partitions, "records": sizes.records}
    answers = [_client("consume", bootstrap, f"records-{partitions}-0", **arguments) for _ in range(sizes.runs)]
    return _best(answers, {"records": sizes.records, "bytes": sizes.records * SIZE})


def _best(answers: list[dict[str, Any]], wanted: dict[str, int]) -> Found:
    equal = all(wanted.items() <= answer.items() for answer in answers)
    return Found(wanted["records"], min(answer["seconds"] for answer in answers), equal)


def _latency(sizes: Sizes, bootstrap: str) -> Found:
    topic = _create(bootstrap, "latency", 1)
    records = RATE * (sizes.seconds + WARM_UP_SECONDS)
    answer = _client("latency", bootstrap, topic, rate=RATE, records=records, size=SIZE)
    ways = answer["milliseconds"][RATE * WARM_UP_SECONDS :]
    extra = {f"p{share}_ms": round(percentile(ways, share / 100), 3) for share in (50, 99)}
    return Found(len(ways), float(sizes.seconds), answer["in_order"], extra)


def _spark(sizes: Sizes, cache: Path, bootstrap: str) -> Found:
    trades = Trades(sizes.json_records, SYMBOLS, "json", 1, cache)
    trades.prepare()
    partitions = cores()
    topic = _create(bootstrap, "trades", partitions)
    _client("produce_lines", bootstrap, topic, partitions=partitions, folder=str(trades.input))
    arguments = {"bootstrap": bootstrap, "topic": topic, "warmups": 1, "runs": sizes.runs}
    answer = _call("benchmarks.log_spark", json.dumps(arguments))
    with duckdb.connect() as db:
        query = f"SELECT count(ts), sum(size) FROM read_json('{trades.input}/*.json')"
        wanted = [int(value) for value in db.execute(query).fetchall()[0]]
    return Found(sizes.json_records, answer["seconds"], answer["sums"] == wanted)


def _create(bootstrap: str, topic: str, partitions: int) -> str:
    admin = _admin(bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    return topic


def _delete(bootstrap: str, topic: str) -> None:
    admin = _admin(bootstrap)  # kept in a name: without one it would be gone before its answer comes
    admin.delete_topics([topic])[topic].result()


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _client(case: str, bootstrap: str, topic: str, **arguments: Any) -> dict[str, Any]:
    given = {"bootstrap": bootstrap, "topic": topic, **arguments}
    return _call("benchmarks.log_client", case, json.dumps(given))


def _call(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of ours to its end, and return what its last line says."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
