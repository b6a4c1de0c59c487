"""The driver's socket: managers attach, one at a time; events and heartbeats go to the newest of them.

It runs in a thread of its own with an event loop, so that no job waits for a manager. A manager that reads too slowly
is disconnected: it attaches again, and gets the events that it missed from the buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from pathlib import Path
from typing import Protocol

from penstock.driver.event_buffer import EventBuffer
from penstock.driver.messages import LONGEST_LINE, BadMessage, Message, decode, encode
from penstock.storage.file_names import short_path

SOCKET = "driver.sock"
HEARTBEAT_SECONDS = 5.0
ATTACH_SECONDS = 10.0
# What a manager may leave unread.
MOST_UNREAD = 8 * 1024 * 1024
_log = logging.getLogger(__name__)


class Host(Protocol):
    """What carries messages out."""

    events: EventBuffer

    def attach(self, token: int) -> str | None:
        """Accept a manager by its fencing token, or return why it is refused."""

    def hello(self) -> Message:
        """Return the answer to `attach`."""

    def heartbeat(self, *, attached: bool) -> Message:
        """Return a heartbeat."""

    def handle(self, message: Message) -> Message | None:
        """Carry out a message; return one if it cannot be carried out."""


class SocketServer:
    """Listens in a run folder from `start` until `close`."""

    def __init__(self, folder: Path, host: Host, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._path, self._host, self._heartbeat_seconds = folder / SOCKET, host, heartbeat_seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="driver-socket", daemon=True)
        self._manager: _Connection | None = None
        self._ending = asyncio.Event()

    def start(self) -> None:
        """Listen; raises OSError if that is not possible."""
        self._socket = _bind(self._path)
        self._socket.listen()
        self._thread.start()

    def publish(self, event: Message) -> None:
        """Send an event to the manager, if one is attached; may be called from any thread, and never waits."""
        # The loop is closed once the driver ends.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._send_event, event)

    def close(self, seconds: float = 2.0) -> None:
        """Give the manager a moment to read what was sent, then stop listening."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(seconds)
        self._path.unlink(missing_ok=True)

    # --- in the thread of the loop ---------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        server = await asyncio.start_unix_server(self._accept, sock=self._socket, limit=LONGEST_LINE)
        beating = asyncio.create_task(self._beat())
        await self._ending.wait()
        beating.cancel()
        server.close()
        if self._manager is not None:
            await self._manager.finish()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            try:
                beat = self._host.heartbeat(attached=self._manager is not None)
            except Exception:  # without heartbeats the manager would kill a job that runs well
                _log.exception("no heartbeat")
                continue
            if self._manager is not None:
                self._manager.send(beat)

    def _send_event(self, event: Message) -> None:
        if self._manager is not None:
            self._manager.send_event(event)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        try:
            first = decode(await asyncio.wait_for(reader.readline(), ATTACH_SECONDS))
            if self._attach(connection, first):
                await self._read(reader, connection)
        except BadMessage as error:
            connection.send({"type": "refused", "reason": str(error)})
        except (OSError, TimeoutError, ValueError):  # ValueError: the line is too long
            pass
        finally:
            if self._manager is connection:
                self._manager = None
            writer.close()

    def _attach(self, connection: _Connection, message: Message) -> bool:
        token, after = message.get("token"), message.get("after") or 0
        if message["type"] != "attach" or not isinstance(token, int) or not isinstance(after, int):
            text = 'the first message is {"type":"attach","token":N,"after":SEQ}'
            raise BadMessage(text)
        if (reason := self._host.attach(token)) is not None:
            connection.send({"type": "refused", "reason": reason})
            return False
        if self._manager is not None:
            self._manager.drop()
        self._manager = connection
        connection.send(self._host.hello())
        for event in self._host.events.after(after):
            connection.send_event(event)
        return True

    async def _read(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while (line := await reader.readline()) and self._manager is connection:
            answer = self._host.handle(decode(line))
            if answer is not None:
                connection.send(answer)


class _Connection:
    """One connection; events are sent once each, in order."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._sent = 0

    def send(self, message: Message) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.write(encode(message))
        if transport.get_write_buffer_size() > MOST_UNREAD:
            _log.warning("the manager does not read its messages: disconnected")
            self.drop()

    def send_event(self, event: Message) -> None:
        if event["seq"] > self._sent:
            self._sent = event["seq"]
            self.send(event)

    def drop(self) -> None:
        self._writer.transport.abort()

    async def finish(self) -> None:
        """Wait until the other side has read everything."""
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as name:
            listener.bind(name)
        # Before it listens, so that nobody else can connect.
        path.chmod(0o600)
    except BaseException:
        listener.close()
        raise
    return listener
