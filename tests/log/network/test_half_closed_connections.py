"""Promise: a client that sends produce requests and shuts down its writing side gets every answer, as from Kafka.

One that shuts it down while it only waits, for records or for its group, is disconnected at once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.kafka.records import Record, build_batch
from penstock.log.handlers import HOT
from penstock.log.network.connection import Connection
from penstock.log.network.transport import PlainWire
from penstock.log.protocol.apis import BY_NAME
from penstock.log.storage.partition import Partition
from tests.log.groups.broker_fixture import let_it_work
from tests.log.requests import decoded_reply, framed, head
from tests.log.transactions.brokers import Still, running

PRODUCE, FETCH, JOIN = BY_NAME["produce"], BY_NAME["fetch"], BY_NAME["join_group"]
LIST_OFFSETS, METADATA = BY_NAME["list_offsets"], BY_NAME["metadata"]
TIMEOUT_SECONDS = 60
MIB = 1 << 20


class SlowDisk(Still):
    """A broker whose records become durable when the test says so."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store.create_topic("t", 1, {})
        self.not_durable: list[Callable[[], None]] = []

    def when_durable(self, partition: Partition, then: Callable[[OSError | None], None]) -> None:
        if partition.topic != "t":
            super().when_durable(partition, then)
            return
        self.not_durable.append(lambda: super(SlowDisk, self).when_durable(partition, then))


class Client:
    """The other end of a connection."""

    def __init__(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection, self._reader, self._writer = connection, reader, writer

    async def send(self, *requests: bytes, served: int | None = None) -> None:
        """Send requests; return when the log serves all of them, or as many as it is said."""
        self._writer.write(b"".join(map(framed, requests)))
        while self.connection.usage.unanswered < (len(requests) if served is None else served):
            await asyncio.sleep(0)
        await let_it_work()

    async def half_close(self) -> None:
        """Shut down the writing side; return when the log has noticed."""
        self._writer.write_eof()
        await let_it_work()

    async def answers(self) -> list[bytes]:
        """Read up to the end of the connection."""
        data, found = await self._reader.read(-1), []
        while data:
            size = int.from_bytes(data[:4])
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found


@asynccontextmanager
async def connected(broker: Still) -> AsyncIterator[Client]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = Connection(broker, "10.0.0.1", None)
    connection.opened(PlainWire(asyncio.get_running_loop(), theirs, connection))
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        yield Client(connection, reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
        connection.close()


Story = Callable[[SlowDisk, Client], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    async def whole() -> None:
        broker = SlowDisk(folder)
        async with asyncio.timeout(TIMEOUT_SECONDS), running(broker), connected(broker) as client:
            await story(broker, client)

    asyncio.run(whole())


def produce(number: int, acks: int = -1, damaged: bytes = b"") -> bytes:
    records = bytes(build_batch([Record(None, b"%d" % number, timestamp=1_000_000)]))
    records = records[: len(records) - len(damaged)] + damaged
    body = struct.pack(">hhiih", -1, acks, 10_000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, len(records))
    return head(PRODUCE, 3, correlation=number) + body + records


def long_poll() -> bytes:
    start = struct.pack(">iiiibih", -1, 60_000, 1, MIB, 0, 1, 1) + b"t"
    return head(FETCH, 4) + start + struct.pack(">iiqi", 1, 0, 0, MIB)


def join() -> bytes:
    name, kind, protocol = (struct.pack(">h", len(text)) + text for text in (b"g", b"consumer", b"range"))
    times = struct.pack(">ii", 30_000, 60_000)
    return head(JOIN, 1) + name + times + struct.pack(">h", 0) + kind + struct.pack(">i", 1) + protocol + bytes(4)


def test_requests_behind_one_that_ends_the_connection_are_not_served(tmp_path: Path) -> None:
    async def story(broker: SlowDisk, client: Client) -> None:
        await client.send(produce(0, acks=0), produce(1, acks=0, damaged=b"\xff\xff"), produce(2, acks=0), served=0)
        assert await client.answers() == []
        assert broker.store.partition("t", 0).end == 1

    play(tmp_path, story)


@pytest.mark.parametrize("alone", [False, True], ids=["together", "while the validation threads are busy"])
def test_a_client_that_half_closes_after_produce_requests_gets_every_answer(tmp_path: Path, alone: bool) -> None:
    async def story(broker: SlowDisk, client: Client) -> None:
        await client.send(*map(produce, range(3)))
        if alone:
            client.connection.serve_alone()
        await client.half_close()
        assert client.connection.usage.unanswered == 3
        for make_durable in broker.not_durable:
            make_durable()
        answers = await client.answers()
        assert [int.from_bytes(answer[:4]) for answer in answers] == [0, 1, 2]
        results = [decoded_reply(PRODUCE, 3, answer[4:]).responses[0].partition_responses[0] for answer in answers]
        assert [(one.error_code.name, one.base_offset) for one in results] == [("none", n) for n in range(3)]

    play(tmp_path, story)


def test_a_client_with_many_unanswered_produce_requests_waits_for_the_disk_and_gets_every_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.network.connection._MOST_UNANSWERED", 3)

    async def story(broker: SlowDisk, client: Client) -> None:
        await client.send(*map(produce, range(7)), served=3)
        await client.half_close()
        for served in (3, 3, 1):
            assert client.connection.usage.unanswered == len(broker.not_durable) == served
            waiting, broker.not_durable = broker.not_durable, []
            for make_durable in waiting:
                make_durable()
        answers = await client.answers()
        assert [int.from_bytes(answer[:4]) for answer in answers] == list(range(7))

    play(tmp_path, story)


def test_a_client_that_half_closes_during_a_long_poll_is_disconnected_at_once(tmp_path: Path) -> None:
    async def story(broker: SlowDisk, client: Client) -> None:
        partition = broker.store.partition("t", 0)
        await client.send(long_poll())
        assert len(partition.waiters) == 1
        await client.half_close()
        assert await client.answers() == []
        assert not partition.waiters

    play(tmp_path, story)


def test_many_requests_that_are_answered_at_once_wait_behind_a_slow_one(tmp_path: Path) -> None:
    async def story(_: SlowDisk, client: Client) -> None:
        body = struct.pack(">ii", -1, 0)
        polls = [head(FETCH, 4) + struct.pack(">iiiibi", -1, 0, 1, MIB, 0, 0)] * 500
        await client.send(head(LIST_OFFSETS, 1) + body, *polls, served=1)
        await client.half_close()
        assert len(await client.answers()) == 501

    play(tmp_path, story)


def large_answers(broker: SlowDisk, count: int) -> list[bytes]:
    """Requests with answers of 50 KB each."""
    broker.store.create_topic("large", 2000, {})
    return [head(METADATA, 1, correlation=number) + struct.pack(">i", -1) for number in range(count)]


@pytest.mark.parametrize("count", [100, 101], ids=["metadata", "and a produce request"])
def test_a_client_that_half_closes_before_it_reads_gets_the_answers_to_all_that_it_sent(
    tmp_path: Path, count: int
) -> None:
    """Its requests arrive together and are served as it reads: the answers are larger than what may wait."""

    async def story(broker: SlowDisk, client: Client) -> None:
        broker.call_later = asyncio.get_running_loop().call_later  # type: ignore[assignment, method-assign]
        asked = [*large_answers(broker, 100), produce(100)]
        await client.send(*asked[:count], served=1)
        await client.half_close()
        for _ in range(500):
            await asyncio.sleep(0)
        assert 0 < client.connection.usage.unsent < 2 * MIB
        assert client.connection.usage.waiting > 0
        reading = asyncio.create_task(client.answers())
        while count > 100 and not broker.not_durable:
            await asyncio.sleep(0)
        for make_durable in broker.not_durable:
            make_durable()
        answers = await reading
        assert [int.from_bytes(answer[:4]) for answer in answers] == list(range(count))
        assert len({len(answer) for answer in answers[:100]}) == 1

    play(tmp_path, story)


def test_a_client_that_half_closes_during_a_long_poll_gets_the_answers_before_it(tmp_path: Path) -> None:
    async def story(broker: SlowDisk, client: Client) -> None:
        await client.send(*large_answers(broker, 15), served=1)
        while client.connection.usage.unanswered:
            await asyncio.sleep(0)
        await client.send(long_poll())
        await client.half_close()
        assert client.connection.usage.unsent > 0
        answers = await client.answers()
        assert [int.from_bytes(answer[:4]) for answer in answers] == list(range(15))
        assert not broker.store.partition("t", 0).waiters

    play(tmp_path, story)


def test_a_mistake_in_a_request_that_had_to_wait_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setitem(HOT, "fetch", mistaken)
    full = True
    monkeypatch.setattr("penstock.log.network.connection._is_full", lambda _: full)

    async def story(broker: SlowDisk, client: Client) -> None:
        nonlocal full
        await client.send(long_poll(), long_poll(), served=0)
        assert client.connection.usage.waiting > 0
        full = False
        client.connection._resume()  # as a timer does
        assert await client.answers() == []

    play(tmp_path, story)


def test_a_client_that_half_closes_while_it_waits_for_its_group_is_disconnected_at_once(tmp_path: Path) -> None:
    async def story(_: SlowDisk, client: Client) -> None:
        await client.send(join())
        await client.half_close()
        assert await client.answers() == []
        assert client.connection.usage.unanswered == 0

    play(tmp_path, story)


def test_a_client_that_half_closes_while_it_waits_for_nothing_is_disconnected(tmp_path: Path) -> None:
    async def story(_: SlowDisk, client: Client) -> None:
        await client.half_close()
        assert await client.answers() == []

    play(tmp_path, story)


def test_replies_that_a_slow_client_has_not_read_are_sent_before_the_connection_ends(tmp_path: Path) -> None:
    """A timer that resumes reading, after a quota for example, finds the end of the input once more."""

    async def story(_: SlowDisk, client: Client) -> None:
        wire = client.connection._wire
        assert wire is not None
        reply = framed(bytes(8 * MIB))
        wire.send([reply])
        wire.close()
        assert wire.queued > 0
        await client.half_close()
        wire.resume()
        assert await client.answers() == [reply[4:]]

    play(tmp_path, story)
