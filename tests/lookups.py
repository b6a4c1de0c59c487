"""A real HTTP server for lookups, and the few lines of client that ask it: both plain asyncio."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 5.0


class Lookups:
    """Answers `GET /KIND/KEY` with a ticket that is never given twice, and notes how many ask at once.

    flaky   the first question about a key fails, the next one is answered
    broken  fails always
    never   is not answered
    crowd   is answered when so many ask at once as `crowd` says, or when no more come
    last    is answered when nobody else is waiting and something else has been answered
    """

    def __init__(self, crowd: int) -> None:
        self.crowd = crowd
        self.now = self.most = self.tickets = 0
        self.asked: Counter[str] = Counter()
        self.port = 0

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        self.changed = asyncio.Condition()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        await self._count(1)
        self.asked[path] += 1
        status = await self._status(path.split("/")[1], path, reader)
        await self._count(-1)
        if status:
            self.tickets += 1
            body = json.dumps({"ticket": self.tickets}).encode()
            writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        writer.close()

    async def _status(self, kind: str, path: str, reader: asyncio.StreamReader) -> int:
        match kind:
            case "flaky":
                return 200 if self.asked[path] > 1 else 500
            case "broken":
                return 500
            case "never":
                await reader.read()
                return 0
            case "crowd":
                await self._until(lambda: self.now >= self.crowd, 0.1)
            case "last":
                await self._until(lambda: self.now == 1 and self.tickets > 0, 1.0)
        return 200

    async def _until(self, holds: Any, seconds: float) -> None:
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait_for(holds), seconds)
            except TimeoutError:
                return

    async def _count(self, by: int) -> None:
        async with self.changed:
            self.now += by
            self.most = max(self.most, self.now)
            self.changed.notify_all()


@contextmanager
def looking_up(crowd: int = 0) -> Iterator[Lookups]:
    """Run the server beside the test."""
    made, started = Lookups(crowd), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(made.serve(started, stop),))
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class Client:
    """Asks the server; knows whether it was closed."""

    closed = 0

    def __init__(self, port: int) -> None:
        self.port = port

    async def get(self, path: str) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            said = await reader.read()
        finally:
            writer.close()
        head, _, body = said.partition(b"\r\n\r\n")
        if b" 200 " not in head:
            raise ConnectionError(head.split(b"\r\n")[0].decode())
        return json.loads(body)

    async def aclose(self) -> None:
        Client.closed += 1
