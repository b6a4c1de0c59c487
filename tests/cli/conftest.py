from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from penstock.cli import main

NAMES = (f"cli-{number}" for number in count())


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def penstock(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Said]:
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))

    def call(*arguments: object) -> Said:
        monkeypatch.setattr("sys.argv", ["penstock", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture(scope="session", params=["penstock", "kafka"])
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of Penstock's own log, then of Apache Kafka: the commands work on both."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka")
        return
    from benchmarks.peers.penstock_log import PenstockServer

    with PenstockServer() as server:
        yield server.bootstrap


@pytest.fixture
def log(penstock: Callable[..., Said], broker: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """The command line with the broker as its log; `lines` are its standard input."""
    monkeypatch.setenv("PENSTOCK_LOG", broker)

    def call(*arguments: object, lines: bytes = b"") -> Said:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
        return penstock(*arguments)

    return call


@pytest.fixture
def make(log: Callable[..., Said]) -> Callable[..., str]:
    """Make a topic and wait until it is there: Kafka tells its clients a moment after it made it."""

    def call(name: str, *options: object) -> str:
        assert log("topic", "create", name, *options).code == 0
        deadline = time.monotonic() + 30
        while log("topic", "describe", name).code:
            assert time.monotonic() < deadline
        return name

    return call


@pytest.fixture
def topic(make: Callable[..., str]) -> str:
    """A new topic with two partitions."""
    return make(next(NAMES), "--partitions", 2)


@pytest.fixture
def send(broker: str) -> Callable[..., None]:
    """Send values to a partition; an idempotent producer, as the command's, takes half a second to begin."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker, "linger.ms": 0})

    def call(topic: str, *values: object, partition: int = 0) -> None:
        for value in values:
            producer.produce(topic, str(value), partition=partition)
        producer.flush()

    return call
