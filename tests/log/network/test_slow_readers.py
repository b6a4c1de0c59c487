"""Promise: a client that does not read its answers holds little memory of the log, over TLS as over plain TCP."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from penstock.kafka.records import Record, build_batch
from penstock.log.network.transport import LARGE, SendQueue
from penstock.log.protocol.apis import BY_NAME
from penstock.log.storage.segments.files import Handle
from penstock.log.storage.segments.segment import Slice
from tests.log.requests import framed, head
from tests.log.security.certificates import Pair, authority, signed
from tests.log.server import LogProcess
from tests.log.storage.logs import quick_folder
from tests.waiting import wait_for

MIB = 1 << 20
READERS = 8
FETCHED = 40 * MIB
PRODUCE, FETCH, METADATA = BY_NAME["produce"], BY_NAME["fetch"], BY_NAME["metadata"]
# One partition of large batches, and many partitions whose parts of an answer are too small for a sendfile.
SHAPES = {"large": (1, 900_000, 48), "small": (1500, 30_000, 1)}


class Client:
    """A connection that sends requests and reads answers when it is asked to."""

    def __init__(self, port: int, trusted: Pair | None) -> None:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.settimeout(60)
        raw.connect(("127.0.0.1", port))
        if trusted is None:
            self.socket: socket.socket = raw
        else:
            context = ssl.create_default_context(cafile=trusted.certificate)
            self.socket = context.wrap_socket(raw, server_hostname="localhost")

    def send(self, body: bytes) -> None:
        self.socket.sendall(framed(body))

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(min(count - len(data), 1 << 16))
            assert more, "the log closed the connection"
            data += more
        return bytes(data)

    def answer(self) -> bytes:
        return self.read(int.from_bytes(self.read(4)))

    def close(self) -> None:
        self.socket.close()


class Served:
    """A log, plain or behind TLS."""

    def __init__(self, process: LogProcess, trusted: Pair | None) -> None:
        self.process = process
        self._trusted = trusted

    def client(self) -> Client:
        return Client(self.process.port, self._trusted)

    @property
    def memory(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@pytest.fixture(scope="module", params=["plain", "tls"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with quick_folder() as folder:
        yield from serve(Path(folder), request.param)


def serve(folder: Path, kind: str) -> Iterator[Served]:
    options, trusted = [], None
    if kind == "tls":
        if shutil.which("openssl") is None:
            pytest.skip("makes certificates with the openssl command")
        trusted = authority(folder)
        server = signed(folder, trusted, "server", "/CN=localhost")
        options = ["--tls-cert", str(server.certificate), "--tls-key", str(server.key)]
    with LogProcess(folder, *options, sync="none") as process:
        log = Served(process, trusted)
        for name, (partitions, size, batches) in SHAPES.items():
            fill(log, name, partitions, size, batches)
        yield log
        assert process.faults == []


def fill(log: Served, topic: str, partitions: int, size: int, batches: int) -> None:
    with closing(log.client()) as client:
        name = struct.pack(">h", len(topic)) + topic.encode()
        client.send(
            head(BY_NAME["create_topics"], 2)
            + struct.pack(">i", 1)
            + name
            + struct.pack(">ih", partitions, 1)
            + struct.pack(">iiib", 0, 0, 10_000, 0)
        )
        client.answer()
        for number in range(partitions * batches):
            index, value = number % partitions, number.to_bytes(4) * (size // 4)
            records = bytes(build_batch([Record(None, value, timestamp=time.time_ns() // 1_000_000)]))
            body = struct.pack(">hhii", -1, -1, 10_000, 1) + name + struct.pack(">iii", 1, index, len(records))
            client.send(head(PRODUCE, 3) + body + records)
            client.answer()


def fetch_request(topic: str) -> bytes:
    partitions = SHAPES[topic][0]
    start = struct.pack(">iiiibi", -1, 1000, 1, FETCHED, 0, 1) + struct.pack(">h", len(topic)) + topic.encode()
    wanted = b"".join(struct.pack(">iqi", index, 0, FETCHED) for index in range(partitions))
    return head(FETCH, 4) + start + struct.pack(">i", partitions) + wanted


@pytest.mark.parametrize("topic", SHAPES)
def test_readers_that_stop_reading_hold_a_bounded_part_of_their_answers(served: Served, topic: str) -> None:
    with closing(served.client()) as reader:  # what one whole answer is, and the memory that serving one leaves behind
        reader.send(fetch_request(topic))
        whole = reader.answer()
    assert len(whole) > FETCHED * 0.8
    before = served.memory
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(served.client())) for _ in range(READERS)]
        for reader in readers:
            reader.send(fetch_request(topic))
        # Once its first bytes are there, an answer is queued as a whole; the rest is left unread.
        assert {reader.read(4) for reader in readers} == {struct.pack(">i", len(whole))}
        assert served.memory - before < READERS * 3 * MIB
        assert readers[0].read(len(whole)) == whole
        assert readers[-1].read(len(whole)) == whole


def test_a_reader_that_asks_on_without_reading_is_not_served_further(served: Served) -> None:
    before, sent = served.memory, 0
    request = framed(head(METADATA, 1) + struct.pack(">i", -1)) * 100
    with closing(served.client()) as client:
        client.socket.settimeout(1)
        try:
            while sent < 10 * MIB:
                client.socket.sendall(request)
                sent += len(request)
        except TimeoutError:
            pass
        with closing(served.client()) as other:  # nobody waits for it
            other.send(head(METADATA, 1) + struct.pack(">i", 0))
            other.answer()
        assert sent < 10 * MIB
        assert served.memory - before < 16 * MIB


def test_requests_that_arrive_together_are_served_as_their_answers_are_read(served: Served) -> None:
    before, count = served.memory, 300
    requests = [framed(head(METADATA, 1, correlation=number) + struct.pack(">i", -1)) for number in range(count)]
    with closing(served.client()) as client, closing(served.client()) as other:
        client.socket.sendall(b"".join(requests))
        for _ in range(count):  # the log serves both in turns
            other.send(head(METADATA, 1) + struct.pack(">i", 0))
            other.answer()
        assert served.memory - before < 6 * MIB
        first = client.answer()
        assert count * len(first) > 10 * MIB
        for number in range(1, count):
            assert client.answer() == number.to_bytes(4) + first[4:]


def test_clients_that_have_gone_hold_nothing(served: Served) -> None:
    """With TLS each left 275 KB until Python looked for cycles."""

    def visit() -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(closing(served.client())) for _ in range(100)]
            for client in clients:
                client.send(head(METADATA, 1) + struct.pack(">i", 0))
                client.answer()

    visit()
    before = served.memory
    for _ in range(3):
        visit()
    wait_for(lambda: served.memory - before < 12 * MIB, "the memory of clients that have gone is not freed")


def test_a_queue_gives_back_what_was_added_in_any_portions(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)) * 1024)
    handle = Handle(tmp_path / "f")
    pieces = [b"head", Slice(handle, 10, 100, 0), b"", b"between", Slice(handle, 1000, LARGE + 7, 0), b"tail" * 1000]
    wanted = b"".join(
        piece if isinstance(piece, bytes) else handle.read(piece.position, piece.size) for piece in pieces
    )
    for portion in (1, 3, 100, 5000, 1 << 20):
        queue, found = SendQueue(), bytearray()
        queue.add(pieces)
        assert (queue.size, queue.memory) == (len(wanted), 4011)
        while queue:
            data = queue.take(portion)
            sent = max(len(data) // 2, 1)  # a socket takes a part
            found += data[:sent]
            queue.put_back(data[sent:])
        assert (bytes(found), queue.size, queue.memory) == (wanted, 0, 0)
