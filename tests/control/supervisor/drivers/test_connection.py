"""The manager attaches with its token, gets a hello or a refusal, then messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.control.supervisor.drivers.connection import (
    SOCKET,
    DriverConnection,
    DriverUnreachable,
    TokenRefused,
    short_path,
)

HELLO = {"type": "hello", "pid": 1, "started": 1.0, "spare": False, "jobs": {}}
Talk = Callable[[DriverConnection], Awaitable[Any]]


def talk(folder: Path, replies: list[dict[str, Any]], conversation: Talk, after: int = 0) -> list[dict[str, Any]]:
    """Run a conversation with a driver that sends some replies to the first line; return what it received."""
    received: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(json.loads(await reader.readline()))
        writer.write(b"".join(json.dumps(one).encode() + b"\n" for one in replies))
        if line := await reader.readline():
            received.append(json.loads(line))
        writer.close()
        closed.set()

    async def main() -> None:
        with short_path(folder / SOCKET) as path:
            server = await asyncio.start_unix_server(serve, path)
        async with server:
            try:
                connection = await DriverConnection.open(folder, 7, after)
                await conversation(connection)
                connection.close()
            finally:
                await closed.wait()

    closed = asyncio.Event()
    asyncio.run(main())
    return received


async def nothing(_connection: DriverConnection) -> None:
    pass


def test_attach_carries_the_token_and_the_last_event(tmp_path: Path) -> None:
    assert talk(tmp_path, [HELLO], nothing, after=12) == [{"type": "attach", "token": 7, "after": 12}]


def test_messages_are_yielded_until_the_driver_closes(tmp_path: Path) -> None:
    beat = {"type": "heartbeat", "jobs": {}}
    got: list[dict[str, Any]] = []

    async def conversation(connection: DriverConnection) -> None:
        await connection.send({"type": "exit"})
        got.extend([one async for one in connection.messages()])

    received = talk(tmp_path, [HELLO, beat, beat], conversation)
    assert got == [beat, beat]
    assert received[1] == {"type": "exit"}


def test_a_driver_that_knows_a_newer_manager_refuses(tmp_path: Path) -> None:
    with pytest.raises(TokenRefused, match="token 9"):
        talk(tmp_path, [{"type": "refused", "reason": "token 9 was seen"}], nothing)


def test_a_missing_driver_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(DriverUnreachable):
        asyncio.run(DriverConnection.open(tmp_path, 1))


def test_an_answer_that_is_no_hello_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DriverUnreachable, match="no hello"):
        talk(tmp_path, [{"type": "heartbeat"}], nothing)


def test_a_folder_with_a_long_path_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("path" * 20)
    folder.mkdir(parents=True)
    assert talk(folder, [HELLO], nothing)
