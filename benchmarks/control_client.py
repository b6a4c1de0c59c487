"""Clients of the job manager in a process of their own: `python -m benchmarks.control_client CASE ARGUMENTS`.

Arguments are JSON, and so is the answer, on the last line. Requests are written by hand: a client library would take
more of the two cores than the server that is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

CONNECTIONS = 32
CONNECTING = 50
WAIT_SECONDS = 30
_LENGTH = re.compile(rb"^content-length: *(\d+)\r$", re.IGNORECASE | re.MULTILINE)
Answer = dict[str, Any]


class HttpConnection:
    """One connection that is kept open; one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Send a request; return the status and the body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        body = await reader.readexactly(int(found[1]) if found else 0)
        return int(head.split(b" ", 2)[1]), body

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()


async def requests(url: str, paths: dict[str, list[str]], rate: int, seconds: float) -> Answer:
    """Send requests of each kind in turn at a steady rate; return by kind how long each took, in milliseconds.

    The time counts from when a request was due: if the server is late with one, those that wait behind it are too.
    """
    free: asyncio.Queue[HttpConnection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(HttpConnection(url))
    times: dict[str, list[float]] = {kind: [] for kind in paths}
    failed: dict[str, int] = dict.fromkeys(paths, 0)
    kinds = list(paths)
    started = time.perf_counter()

    async def send(number: int) -> None:
        kind = kinds[number % len(kinds)]
        path = paths[kind][number // len(kinds) % len(paths[kind])]
        connection = await free.get()
        status, body = await connection.request(path)
        times[kind].append((time.perf_counter() - started - number / rate) * 1000)
        free.put_nowait(connection)
        failed[kind] += status != 200 or not body

    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            group.create_task(send(number))
    took = time.perf_counter() - started
    while not free.empty():
        free.get_nowait().close()
    return {"milliseconds": times, "failed": failed, "seconds": took}


async def events(url: str, clients: int, job: str) -> Answer:
    """Connect WebSocket clients, delete a job, and return how long each waited for that event, in milliseconds."""
    started = time.perf_counter()
    limit = asyncio.Semaphore(CONNECTING)
    sockets = await asyncio.gather(*(_subscribed(url, limit) for _ in range(clients)))
    connected = time.perf_counter()
    waiting = [asyncio.create_task(_deleted(socket, job)) for socket in sockets]
    control = HttpConnection(url)
    sent = time.perf_counter()
    status, _ = await control.request(f"/api/v1/jobs/{job}", "DELETE")
    done, missing = await asyncio.wait(waiting, timeout=WAIT_SECONDS)
    for task in missing:
        task.cancel()
    control.close()
    times = [(task.result() - sent) * 1000 for task in done]
    # Closing a thousand connections politely is not what is measured.
    for socket in sockets:
        socket.transport.abort()
    return {"milliseconds": times, "status": status, "connect_seconds": connected - started}


async def _subscribed(url: str, limit: asyncio.Semaphore) -> ClientConnection:
    address = url.replace("http", "ws", 1) + "/api/v1/events"
    async with limit:
        socket = await connect(address, compression=None, open_timeout=WAIT_SECONDS, ping_interval=None, proxy=None)
        first = json.loads(await socket.recv())
    if first["kind"] != "subscribed":
        raise SystemExit(f"the first event is {first}")
    return socket


async def _deleted(socket: ClientConnection, job: str) -> float:
    while True:
        event = json.loads(await socket.recv())
        if event["kind"] == "deleted" and event["job"] == job:
            return time.perf_counter()


CASES: dict[str, Callable[..., Coroutine[Any, Any, Answer]]] = {"requests": requests, "events": events}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(CASES[sys.argv[1]](**json.loads(sys.argv[2])))), flush=True)
