"""Whatever bytes arrive, the log goes on serving, in bounded memory, and never meets a mistake of its own."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import cramjam
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial.errors import OutOfBoundValue

from penstock.kafka.batches import write_checksum
from penstock.kafka.records import Record, build_batch
from penstock.log.protocol.apis import APIS, BY_NAME, Api
from tests.log.requests import VERSIONS, decoded_reply, encoded, framed, head, requests
from tests.log.server import LogProcess

MIB = 1 << 20
IDLE_CONNECTIONS = 10_000
fuzzed = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
HUGE = (b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x08")
PRODUCE, API_VERSIONS = BY_NAME["produce"], BY_NAME["api_versions"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogProcess]:
    with LogProcess(tmp_path_factory.mktemp("fuzz"), sync="none") as server:
        serve_a_good_client(server)
        create_topics(server)
        yield server
        serve_a_good_client(server)
        assert server.faults == []
        assert server.stop() == 0


def create_topics(server: LogProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topics = [NewTopic("fuzzed", 1, 1), NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"})]
    for created in admin.create_topics(topics).values():
        created.result(20)


def serve_a_good_client(server: LogProcess) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
    producer.produce("good", b"still here", partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "good"})
    with closing(consumer):
        _, end = consumer.get_watermark_offsets(TopicPartition("good", 0), timeout=20)
        consumer.assign([TopicPartition("good", 0, end - 1)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"still here"


def connect(server: LogProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def answer(connection: socket.socket) -> bytes | None:
    """Return the next answer without its length; None if the log closed the connection instead."""
    try:
        size = _exactly(connection, 4)
        return None if size is None else _exactly(connection, int.from_bytes(size))
    except ConnectionError:
        return None


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def exchange(server: LogProcess, data: bytes, *, last: bool = True) -> bytes | None:
    """Send bytes and nothing more, and return the answer if there is one."""
    with closing(connect(server)) as connection:
        try:
            connection.sendall(data)
            if last:
                connection.shutdown(socket.SHUT_WR)
        except ConnectionError:
            return None
        return answer(connection)


def is_alive(server: LogProcess) -> bool:
    """Whether a new connection gets an answer: the log waits for nobody."""
    return exchange(server, framed(head(API_VERSIONS, 0)), last=False) is not None


@fuzzed
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(log: LogProcess, data: bytes) -> None:
    exchange(log, data)
    assert is_alive(log)


@fuzzed
@given(data=st.binary(max_size=100))
def test_random_bytes_in_a_frame_are_refused(log: LogProcess, data: bytes) -> None:
    exchange(log, framed(data))
    assert is_alive(log)


@pytest.mark.parametrize("length", [0, 1, 7, -1, -(2**31), 2**31 - 1, 100 * MIB, 100 * MIB + 1, 0x47455420])
def test_an_absurd_length_takes_no_memory(log: LogProcess, length: int) -> None:
    before = psutil.Process(log.pid).memory_info().rss
    with ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(closing(connect(log)))
            connection.sendall(struct.pack(">i", length) + b"x" * 100)
        assert is_alive(log)
        assert psutil.Process(log.pid).memory_info().rss - before < 50 * MIB


@settings(fuzzed, max_examples=150)
@given(kind=st.sampled_from(VERSIONS), body=st.binary(max_size=60))
def test_garbage_behind_a_good_header_is_refused(log: LogProcess, kind: tuple[Api, int], body: bytes) -> None:
    exchange(log, framed(head(*kind) + body))
    assert is_alive(log)


@pytest.mark.parametrize("version", [-1, 99, 32767, -32768])
def test_a_version_that_is_not_served_is_refused(log: LogProcess, version: int) -> None:
    answered = [name for name, api in BY_NAME.items() if exchange(log, framed(head(api, version))) is not None]
    assert answered == ["api_versions"]


@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_a_made_up_request_is_answered_in_its_own_format(log: LogProcess, data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    request = data.draw(requests(api, version))
    got = exchange(log, framed(head(api, version) + encoded(request)))
    if got is not None:
        is_tagged = api.is_flexible(version) and api is not API_VERSIONS
        assert got[:4] == struct.pack(">i", 7)
        # kio cannot read that there is no time, which Kafka writes as -1.
        with suppress(OutOfBoundValue):
            decoded_reply(api, version, got[5 if is_tagged else 4 :])
    assert is_alive(log)


@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_a_request_with_a_few_wrong_bytes_does_no_harm(log: LogProcess, data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    body = bytearray(head(api, version) + encoded(data.draw(requests(api, version))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    exchange(log, framed(bytes(body)))
    assert is_alive(log)


@fuzzed
@given(data=st.data())
def test_a_frame_that_ends_early_does_no_harm(log: LogProcess, data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    whole = head(api, version) + encoded(data.draw(requests(api, version)))
    part = whole[: data.draw(st.integers(0, len(whole)))]
    exchange(log, framed(part) if data.draw(st.booleans()) else framed(whole)[: len(part)])
    assert is_alive(log)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_an_array_of_a_huge_count_takes_no_memory(log: LogProcess, api: Api) -> None:
    before = psutil.Process(log.pid).memory_info().rss
    for version in {api.oldest, api.newest}:
        for at in range(20):
            for count in HUGE:
                exchange(log, framed(head(api, version) + b"\0" * at + count + b"\0" * 16))
    assert is_alive(log)
    assert psutil.Process(log.pid).memory_info().rss - before < 50 * MIB


def produce_request(records: bytes, topic: bytes = b"good") -> bytes:
    """A produce request, version 3, with records as they are."""
    body = struct.pack(">hhiih", -1, -1, 1000, 1, len(topic)) + topic
    return head(PRODUCE, 3) + body + struct.pack(">iii", 1, 0, len(records)) + records


@settings(fuzzed, max_examples=200)
@given(data=st.data())
def test_a_batch_with_wrong_bytes_is_refused_or_kept_and_read_again(log: LogProcess, data: st.DataObject) -> None:
    """Each is sealed anew, so that the checksum does not hide what is behind it."""
    batch = build_batch([Record(b"k", b"v" * 20, (("h", b"1"),), 1_700_000_000_000)] * 3)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, len(batch) - 1))
        batch[at] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 7, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    write_checksum(batch, 0, len(batch))
    topic = data.draw(st.sampled_from([b"fuzzed", b"compacted"]))
    assert exchange(log, framed(produce_request(bytes(batch), topic))) is not None
    # By time, so that the log opens the batch.
    by_time = struct.pack(">iih", -1, 1, len(topic)) + topic + struct.pack(">iiq", 1, 0, 1)
    exchange(log, framed(head(BY_NAME["list_offsets"], 1) + by_time))
    assert is_alive(log)


def test_a_small_batch_that_would_unpack_to_gigabytes_takes_no_memory(log: LogProcess) -> None:
    """Only a compacted topic has to look into batches."""
    body = bytes(cramjam.zstd.compress(bytes(400 * MIB)))
    batch = build_batch([Record(b"k", b"v")], attributes=4)[:61] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    write_checksum(batch, 0, len(batch))
    before = psutil.Process(log.pid).memory_info().rss
    assert exchange(log, framed(produce_request(bytes(batch), b"compacted"))) is not None
    assert is_alive(log)
    assert psutil.Process(log.pid).memory_info().rss - before < 100 * MIB


def test_requests_that_arrive_a_byte_at_a_time_are_answered(log: LogProcess) -> None:
    request = framed(produce_request(bytes(build_batch([Record(None, b"slow")])))) * 3
    with closing(connect(log)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(request)):
            connection.send(request[at : at + 1])
            if at % 100 == 0:
                assert is_alive(log)
        assert all(answer(connection) is not None for _ in range(3))


def test_requests_that_arrive_together_are_answered_in_order(log: LogProcess) -> None:
    kinds = [("api_versions", 0), ("metadata", 1), ("api_versions", 2)] * 200
    bodies = {"api_versions": b"", "metadata": struct.pack(">i", 0)}
    asked = [head(BY_NAME[name], version, number) + bodies[name] for number, (name, version) in enumerate(kinds)]
    with closing(connect(log)) as connection:
        connection.sendall(b"".join(map(framed, asked)))
        answers = [answer(connection) for _ in asked]
    assert [int.from_bytes((got or b"")[:4]) for got in answers] == list(range(len(asked)))


def test_a_client_that_reads_no_answers_is_not_read_further(log: LogProcess) -> None:
    """Its answers wait in bounded memory, and nobody else waits for it."""
    before = psutil.Process(log.pid).memory_info().rss
    with closing(connect(log)) as connection:
        connection.setblocking(False)
        request = framed(head(API_VERSIONS, 0)) * 1000
        sent = 0
        with suppress(BlockingIOError):
            while sent < 100 * MIB:
                sent += connection.send(request)
        assert is_alive(log)
    assert sent < 100 * MIB
    assert psutil.Process(log.pid).memory_info().rss - before < 100 * MIB


def test_large_requests_that_never_end_hold_bounded_memory(log: LogProcess) -> None:
    """Clients announce 90 MiB each and send most of it: all of them together get no more than the limit."""
    before = psutil.Process(log.pid).memory_info().rss
    chunk = b"\0" * MIB
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(connect(log))) for _ in range(8)]
        for connection in connections:
            connection.sendall(struct.pack(">i", 90 * MIB))
            connection.setblocking(False)
        for _ in range(80):
            for connection in connections:
                _send_what_fits(connection, chunk)
        assert is_alive(log)
        assert psutil.Process(log.pid).memory_info().rss - before < 400 * MIB


def test_large_requests_that_arrive_together_are_all_answered(log: LogProcess) -> None:
    """Together they are more than the limit: some wait, but never all of them for one another."""
    request = framed(produce_request(bytes(80 * MIB)))
    with ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(lambda _: exchange(log, request, last=False), range(5)))
    assert None not in answers


def _send_what_fits(connection: socket.socket, data: bytes) -> None:
    with suppress(BlockingIOError, ConnectionError):
        connection.send(data)


def test_ten_thousand_idle_connections_are_held_and_a_good_client_is_served(log: LogProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE_CONNECTIONS + 500:
        pytest.skip(f"this machine allows {hard} open files; {IDLE_CONNECTIONS} connections need more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = psutil.Process(log.pid).memory_info().rss
    try:
        with ExitStack() as stack:
            for number in range(IDLE_CONNECTIONS):
                connection = stack.enter_context(closing(connect(log)))
                if number % 2:
                    connection.sendall(struct.pack(">ih", MIB, 0))  # a request that never goes on
            serve_a_good_client(log)
            assert psutil.Process(log.pid).memory_info().rss - before < 200 * MIB
            assert len(psutil.Process(log.pid).net_connections()) > IDLE_CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    serve_a_good_client(log)
