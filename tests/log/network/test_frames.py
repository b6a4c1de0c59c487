"""Promise: what a request makes the log allocate is bounded by its size, whatever its bytes say."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from pathlib import Path

import psutil
import pytest
from kio.index import load_request_schema

from penstock.kafka.records import ABORT, Record, build_batch, build_control_batch
from penstock.log.network.connection import Connection
from penstock.log.protocol import cursor
from penstock.log.protocol.apis import APIS, BY_NAME, Api
from penstock.log.protocol.fetch import Piece
from penstock.log.protocol.messages import read_request
from tests.log.groups.broker_fixture import offset
from tests.log.network.request_shapes import Shape, Writer, shapes
from tests.log.requests import framed, head
from tests.log.server import LogProcess
from tests.log.storage.logs import quick_folder
from tests.log.transactions.brokers import TRANSACTIONAL, Still

KIB, MIB = 1 << 10, 1 << 20
SIZE = 8 * KIB
VARIED_SIZE = 2 * KIB  # of elements that differ: a hundred, and a reply could repeat all content of the broker for each
FLOOR = 4 * KIB  # so that small requests meet the bound per byte, too
PER_BYTE = 100  # frame, decoded request, what the handler makes of it, and the reply, together
SPARE = 512 * KIB  # the reply to one element: all partitions of a topic, for example
MANY = 256
TIMEOUT_SECONDS = 60


class Silence:
    """The other end of a connection: counts answers and forgets them."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.queued = self.buffered = 0
        self.answered = 0

    def send(self, pieces: list[Piece]) -> None:
        self.answered += 1
        self.done.set()

    def close(self) -> None:
        self.done.set()

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


async def broker_with_content(folder: Path) -> Still:
    """Return a broker on which one short name stands for much: partitions, offsets, producers, aborted transactions."""
    broker = Still(folder)
    broker.auto_create = False  # a new topic takes memory as long as it exists
    broker.store.create_topic("good", MANY, {})
    await broker.start()
    partition, *_ = [broker.store.partition("good", index) for index in range(MANY)]  # what is open stays in memory
    for producer in range(MANY):
        batch = build_batch(
            [Record(b"k", b"v")],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            attributes=TRANSACTIONAL,
        )
        broker.append(partition, batch)
        broker.append(partition, build_control_batch(ABORT, producer, 0, broker.now), internal=True)
    broker.when_durable(partition, lambda _: None)
    await broker.groups.commit("good", {("good", index): offset(1) for index in range(MANY)})
    await broker.transactions.init_producer_id("good", 60_000)
    return broker


async def allocated(broker: Still, request: bytes) -> int:
    """Return how much memory a request takes at most until it is answered or refused."""
    connection, wire = Connection(broker, "10.0.0.1", None), Silence()
    connection.opened(wire)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    rest = memoryview(request)
    while rest and not wire.done.is_set():
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        del buffer
        connection.buffer_updated(count)
        rest = rest[count:]
    await asyncio.wait_for(wire.done.wait(), TIMEOUT_SECONDS)
    peak = tracemalloc.get_traced_memory()[1] - before
    connection.connection_lost(None)
    return peak


def excesses(folder: Path, kinds: list[tuple[Api, int]], size: int) -> list[str]:
    async def whole() -> list[str]:
        found: list[str] = []
        seen: set[bytes] = set()
        broker = await broker_with_content(folder)
        topic_id = broker.store.topic("good").id.bytes
        tracemalloc.start()
        try:
            for api, version in kinds:
                for shape in shapes(api, version):
                    filled = size if shape.varied is None else VARIED_SIZE
                    writer = Writer(shape, api.is_flexible(version), filled, topic_id)
                    request = framed(head(api, version) + writer.entity(load_request_schema(api.key, version)))
                    if request in seen:
                        continue
                    seen.add(request)
                    peak = await allocated(broker, request)
                    if peak > PER_BYTE * len(request) + SPARE:
                        found.append(f"{api.name} v{version} {shape}: {peak / len(request):.0f} x {len(request)} bytes")
        finally:
            tracemalloc.stop()
            await broker.stop()
        return found

    return asyncio.run(whole())


@pytest.fixture
def low_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "_FLOOR", FLOOR, raising=False)


@pytest.mark.usefixtures("low_floor")
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_no_request_of_the_newest_version_takes_more_memory_than_its_size_allows(api: Api) -> None:
    with quick_folder() as folder:
        assert excesses(Path(folder), [(api, api.newest)], SIZE) == []


@pytest.mark.slow
@pytest.mark.usefixtures("low_floor")
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_no_request_of_any_version_takes_more_memory_than_its_size_allows(api: Api) -> None:
    kinds = [(api, version) for version in range(api.oldest, api.newest + 1)]
    with quick_folder() as folder:
        assert excesses(Path(folder), kinds, 2 * SIZE) == []


def test_a_hundred_megabytes_of_empty_elements_are_refused(tmp_path: Path) -> None:
    """One such request took 12 GiB."""
    api, version = BY_NAME["metadata"], 9  # elements of two bytes: an empty name, and no tags
    schema = load_request_schema(api.key, version)
    wasteful = (Shape((), tags=True), Shape(("topics",), tags=True), Shape(("topics",), name=""))
    with LogProcess(tmp_path, sync="none") as log:
        before = psutil.Process(log.pid).memory_info().rss
        for shape in wasteful:
            body = Writer(shape, True, 100 * MIB - 100).entity(schema)
            with socket.create_connection(("127.0.0.1", log.port), timeout=TIMEOUT_SECONDS) as connection:
                connection.sendall(framed(head(api, version) + body))
                assert connection.recv(4) == b""
        assert log.peak_memory - before < 400 * MIB
        assert log.said.count("more elements than a request may have") == len(wasteful)


def test_a_request_with_as_many_partitions_as_clients_name_is_read() -> None:
    """Ten thousand partitions, and ten thousand topics of ordinary names."""
    api = BY_NAME["list_offsets"]
    shape = Shape(("topics", "partitions"))
    body = Writer(shape, True, 10_000 * 17).entity(load_request_schema(api.key, api.newest))
    assert len(read_request(api, api.newest, body).topics[0].partitions) == 10_000
    api = BY_NAME["metadata"]
    body = Writer(Shape(("topics",), name="a-topic-of-some-length"), True, 2 * MIB)
    assert len(read_request(api, 9, body.entity(load_request_schema(api.key, 9))).topics) > 80_000
