"""Promise: what the log acknowledged is there, once and in order, and transactions are whole, under kill -9."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.log.histories import judge, judge_outputs
from tests.log.load import Copier, Idempotent, Load, Recorder, Transactional, read_all, running
from tests.log.server import LogProcess

PLAIN = [("plain", index) for index in range(3)]
BOTH = [(topic, index) for topic in ("left", "right") for index in range(2)]
COPIES = [("copies", index) for index in range(2)]
FEWEST_KILLS = 5


def test_a_killed_log_keeps_its_promises(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.SystemRandom().randrange(10**6)))
    chance = random.Random(seed)
    print(f"PENSTOCK_TEST_SEED={seed}")
    recorder = Recorder()
    with LogProcess(tmp_path) as log:
        _create_topics(log.bootstrap)
        with running(_loads(log.bootstrap, recorder, chance)):
            for _ in range(max(FEWEST_KILLS, pytestconfig.getoption("--crash-runs"))):
                _wait_for_a_moment(recorder, chance)
                log.kill()
                _leave_what_a_crash_leaves(log.data, chance)
                log.start()
        _judge(log.bootstrap, recorder)
        print(f"{recorder.acknowledged} records acknowledged, {len(recorder.history.decisions)} transactions")
    assert log.faults == []


def _create_topics(bootstrap: str) -> None:
    # Small segments, so that kills hit the moment when one follows another.
    config = {"segment.bytes": "16384"}
    topics = [NewTopic(name, partitions, 1, config=config) for name, partitions in (("plain", 3), ("left", 2))]
    topics += [NewTopic("right", 2, 1, config={"segment.bytes": "4096"}), NewTopic("copies", 2, 1, config=config)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(topics).values():
        created.result(30)


def _loads(bootstrap: str, recorder: Recorder, chance: random.Random) -> list[Load]:
    def config(codec: str) -> dict[str, object]:
        return {"bootstrap.servers": bootstrap, "acks": "all", "compression.type": codec}

    def seed() -> int:
        return chance.randrange(10**9)

    loads: list[Load] = [
        Idempotent(f"sender-{codec}", recorder, config(codec), seed(), PLAIN) for codec in ("none", "lz4", "zstd")
    ]
    loads += [Transactional(f"writer-{codec}", recorder, config(codec), seed(), BOTH) for codec in ("gzip", "snappy")]
    return [*loads, Copier("copier", recorder, config("lz4"), seed(), COPIES, "plain")]


def _wait_for_a_moment(recorder: Recorder, chance: random.Random) -> None:
    """Any time, or when so many records are acknowledged, or when a transaction ends."""
    acknowledged, ends = recorder.acknowledged, recorder.ends
    assert recorder.wait(lambda now: now.acknowledged > acknowledged, 60), "nothing is acknowledged any more"
    match chance.choice(["time", "records", "transaction", "transaction"]):
        case "time":
            _let_pass(recorder, chance.random() * 0.5)
        case "records":
            many = acknowledged + chance.randint(1, 1000)
            recorder.wait(lambda now: now.acknowledged >= many, 10)
        case "transaction":
            several = ends + chance.randint(1, 10)
            recorder.wait(lambda now: now.ends >= several, 10)
            _let_pass(recorder, chance.random() * 0.005)


def _let_pass(recorder: Recorder, seconds: float) -> None:
    """Any time at all is a moment for a crash: there is no condition to wait for."""
    recorder.wait(lambda now: False, seconds)


def _leave_what_a_crash_leaves(data: Path, chance: random.Random) -> None:
    """Half a write behind the last whole batch, or an index that never reached the disk."""
    segments = sorted(path for path in data.glob("*/*.log") if path == max(path.parent.glob("*.log")))
    chosen = chance.choice(segments)
    match chance.choice(["nothing", "nothing", "torn", "zeros", "index"]):
        case "torn":
            whole = chosen.read_bytes()
            _append(chosen, whole[: chance.randrange(len(whole) + 1)] if len(whole) < 10_000 else whole[:61])
        case "zeros":
            _append(chosen, bytes(chance.randint(1, 5000)))
        case "index":
            for path in chosen.parent.glob(chance.choice(["*.index", "*.timeindex", "*.snapshot", "*.txnindex"])):
                path.unlink()


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _judge(bootstrap: str, recorder: Recorder) -> None:
    assert recorder.troubles == []
    history, everything = recorder.history, PLAIN + BOTH + COPIES
    committed, copied = read_all(bootstrap, everything, "read_committed")
    uncommitted, _ = read_all(bootstrap, everything, "read_uncommitted")
    history.committed.append(committed)
    history.uncommitted.append(uncommitted)
    inputs = [seen for seen in committed if seen.place in PLAIN]
    findings = [*judge(history), *judge_outputs(inputs, copied, _positions(bootstrap))]
    assert findings == [], f"{len(findings)} findings, the first ones: {findings[:10]}"


def _positions(bootstrap: str) -> dict[tuple[str, int], int]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "copier"})) as consumer:
        found = consumer.committed([TopicPartition(*place) for place in PLAIN], timeout=30)
        return {(one.topic, one.partition): max(one.offset, 0) for one in found}
