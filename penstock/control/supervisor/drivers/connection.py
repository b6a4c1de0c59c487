"""The manager's end of a driver's socket: attach with the fencing token, then messages both ways, one JSON a line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from penstock.storage.file_names import short_path

Message = dict[str, Any]
SOCKET = "driver.sock"
_LONGEST_LINE = 4 * 1024 * 1024
_REPLY_SECONDS = 10.0
_SEND_SECONDS = 10.0


class DriverUnreachable(Exception):
    """Nobody answers on the driver's socket."""


class TokenRefused(Exception):
    """The driver has seen a newer manager; this one must stop acting."""


class DriverConnection:
    """One attached connection; `hello` is the driver's answer to `attach`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hello: Message) -> None:
        self._reader, self._writer = reader, writer
        self.hello = hello

    @classmethod
    async def open(cls, folder: Path, token: int, after: int = 0) -> DriverConnection:
        """Connect to the driver in a run folder; events after number `after` are replayed."""
        reader, writer = await _connect(folder)
        try:
            writer.write(_encode({"type": "attach", "token": token, "after": after}))
            async with asyncio.timeout(_REPLY_SECONDS):
                await writer.drain()
                hello = _decode(await reader.readline())
            if hello.get("type") == "refused":
                raise TokenRefused(str(hello.get("reason", "the token is old")))
            if hello.get("type") != "hello":
                message = f"no hello from the driver in {folder}: {hello.get('type')!r}"
                raise DriverUnreachable(message)
        except (OSError, TimeoutError, ValueError) as error:
            writer.close()
            raise DriverUnreachable(str(error) or "no answer") from error
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer, hello)

    async def messages(self) -> AsyncIterator[Message]:
        """Yield what the driver sends until it or this side closes the connection."""
        while True:
            try:
                line = await self._reader.readline()
                if not line:
                    return
                yield _decode(line)
            except (OSError, ValueError):
                return

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; raises DriverUnreachable if it cannot be sent."""
        try:
            self._writer.write(_encode(message))
            async with asyncio.timeout(_SEND_SECONDS):
                await self._writer.drain()
        except (OSError, TimeoutError, RuntimeError) as error:
            raise DriverUnreachable(str(error) or "no answer") from error

    def close(self) -> None:
        """Close the connection; the driver goes on."""
        self._writer.close()


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _decode(line: bytes) -> Message:
    message = json.loads(line)
    if not isinstance(message, dict):
        error = "a message is a JSON object"
        raise ValueError(error)
    return message


async def _connect(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        with short_path(folder / SOCKET) as path:
            async with asyncio.timeout(_REPLY_SECONDS):
                return await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
    except (OSError, TimeoutError) as error:
        raise DriverUnreachable(str(error) or "no answer") from error
