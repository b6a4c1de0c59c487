"""Promise: what a request makes the log allocate is bounded by its size, whatever its bytes say."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
import tracemalloc
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from kio.index import load_request_schema

from penstock.kafka.records import Record, build_batch
from penstock.kafka.wire import varint
from penstock.log.network.connection import Connection
from penstock.log.protocol import cursor
from penstock.log.protocol.apis import APIS, BY_NAME, Api
from penstock.log.protocol.fetch import Piece
from penstock.log.protocol.messages import read_request
from tests.log.groups.broker_fixture import offset
from tests.log.requests import framed, head
from tests.log.server import LogProcess
from tests.log.storage.logs import quick_folder
from tests.log.transactions.brokers import Still

KIB, MIB = 1 << 10, 1 << 20
SIZE = 8 * KIB
FLOOR = 4 * KIB  # so that small requests meet the bound per byte, too
PER_BYTE = 100  # frame, decoded request, what the handler makes of it, and the reply, together
SPARE = 128 * KIB  # the reply to one element: all settings of a topic, for example
TIMEOUT_SECONDS = 60
Path_ = tuple[str, ...]


class Shape(NamedTuple):
    """A request that is small elements for the most part: where they are, and what stands in its texts."""

    flooded: Path_
    tags: bool = False
    name: str = "good"
    nulls: bool = False

    def __str__(self) -> str:
        return f"{'/'.join(self.flooded) or 'request'} {self[1:]}"


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


class Writer:
    """Encodes the smallest request of a schema but for one place, which is filled up to a size."""

    def __init__(self, shape: Shape, flexible: bool, size: int) -> None:
        self._shape = shape
        self._flexible = flexible
        self._size = size

    def entity(self, schema: Any, path: Path_ = ()) -> bytes:
        hints = typing.get_type_hints(schema)
        plain = [each for each in dataclasses.fields(schema) if "tag" not in each.metadata]
        body = b"".join(self._field(each, hints[each.name], (*path, each.name)) for each in plain)
        return body + self._tags(path) if self._flexible else body

    def _tags(self, path: Path_) -> bytes:
        if not self._shape.tags or path != self._shape.flooded:
            return b"\0"
        count = self._size // 2
        return _length(count) + b"\x7f\0" * count

    def _field(self, field: dataclasses.Field[Any], hint: Any, path: Path_) -> bytes:
        kind, kafka_type = _without_none(hint), field.metadata.get("kafka_type", "")
        if typing.get_origin(kind) is not tuple:
            return self._one(kind, kafka_type, path)
        item = self._one(typing.get_args(kind)[0], kafka_type, path)
        count = 0 if path != self._shape.flooded[: len(path)] else 1
        if path == self._shape.flooded and not self._shape.tags:
            count = self._size // len(item)
        if not count and self._shape.nulls and kind is not hint:
            return b"\0" if self._flexible else b"\xff\xff\xff\xff"
        return (_length(count + 1) if self._flexible else struct.pack(">i", count)) + item * count

    def _one(self, kind: Any, kafka_type: str, path: Path_) -> bytes:
        if dataclasses.is_dataclass(kind):
            return self.entity(kind, path)
        if kafka_type == "string":
            text = self._shape.name.encode()
            return (_length(len(text) + 1) if self._flexible else struct.pack(">h", len(text))) + text
        if kafka_type in ("bytes", "records"):
            return b"\1" if self._flexible else bytes(4)
        return _FIXED[kafka_type]


_FIXED = {"bool": b"\0", "int8": b"\2", "int16": b"\xff\xff", "int32": bytes(4), "int64": bytes(8), "uuid": bytes(16)}
_FIXED |= {"float64": bytes(8), "timedelta_i32": bytes(4), "timedelta_i64": bytes(8), "uint16": bytes(2)}


def _length(number: int) -> bytes:
    return bytes(varint(number))


def _without_none(hint: Any) -> Any:
    if not isinstance(hint, types.UnionType):
        return hint
    return next(each for each in typing.get_args(hint) if each is not type(None))


def places(schema: Any, path: Path_ = ()) -> Iterator[tuple[Path_, bool]]:
    """Yield where a schema has arrays, at any depth, and whether their elements are entities."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kind = _without_none(hints[field.name])
        if typing.get_origin(kind) is tuple and "tag" not in field.metadata:
            item = typing.get_args(kind)[0]
            yield (*path, field.name), dataclasses.is_dataclass(item)
            if dataclasses.is_dataclass(item):
                yield from places(item, (*path, field.name))


def shapes(api: Api, version: int) -> list[Shape]:
    schema = load_request_schema(api.key, version)
    found = [Shape(path, name=name) for path, _ in places(schema) for name in ("", "good")]
    found += [Shape(path, nulls=True) for path, _ in places(schema)]
    if api.is_flexible(version):
        found += [Shape((), tags=True), *(Shape(path, tags=True) for path, is_entity in places(schema) if is_entity)]
    return found


async def broker_with_content(folder: Path) -> Still:
    broker = Still(folder)
    broker.store.create_topic("good", 8, {})
    await broker.start()
    broker.append(broker.store.partition("good", 0), build_batch([Record(b"k", b"v")]))
    await broker.groups.commit("good", {("good", index): offset(1) for index in range(8)})
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
        broker = await broker_with_content(folder)
        tracemalloc.start()
        try:
            for api, version in kinds:
                for shape in shapes(api, version):
                    body = Writer(shape, api.is_flexible(version), size).entity(load_request_schema(api.key, version))
                    request = framed(head(api, version) + body)
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
    shapes = (Shape((), tags=True), Shape(("topics",), tags=True), Shape(("topics",), name=""))
    with LogProcess(tmp_path, sync="none") as log:
        before = psutil.Process(log.pid).memory_info().rss
        for shape in shapes:
            body = Writer(shape, True, 100 * MIB - 100).entity(schema)
            with socket.create_connection(("127.0.0.1", log.port), timeout=TIMEOUT_SECONDS) as connection:
                connection.sendall(framed(head(api, version) + body))
                assert connection.recv(4) == b""
        assert log.peak_memory - before < 400 * MIB
        assert log.said.count("more elements than a request may have") == len(shapes)


def test_a_request_with_as_many_partitions_as_clients_name_is_read() -> None:
    """Ten thousand partitions, and ten thousand topics of ordinary names."""
    api = BY_NAME["list_offsets"]
    shape = Shape(("topics", "partitions"))
    body = Writer(shape, True, 10_000 * 17).entity(load_request_schema(api.key, api.newest))
    assert len(read_request(api, api.newest, body).topics[0].partitions) == 10_000
    api = BY_NAME["metadata"]
    body = Writer(Shape(("topics",), name="a-topic-of-some-length"), True, 2 * MIB)
    assert len(read_request(api, 9, body.entity(load_request_schema(api.key, 9))).topics) > 80_000
