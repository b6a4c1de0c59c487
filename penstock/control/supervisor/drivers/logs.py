"""The output of drivers: the last lines, and new ones as they are written."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path

LOG = "driver.log"
START_LOG = "start.log"
_POLL_SECONDS = 0.5
_CHUNK = 64 * 1024
_LONGEST_LINE = 64 * 1024


def last_lines(folder: Path, count: int) -> list[str]:
    """Return the last lines of a driver's log, over its rotated files; what it printed before it had one, if none."""
    if count <= 0:
        return []
    found: deque[str] = deque(maxlen=count)
    files = [folder / f"{LOG}.{number}" for number in (2, 1)]
    for path in (folder / START_LOG, *files, folder / LOG):
        found.extend(_tail(path, count))
    return list(found)


def _tail(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, reading it from its end."""
    try:
        with path.open("rb") as file:
            position = file.seek(0, os.SEEK_END)
            data = b""
            while position > 0 and data.count(b"\n") <= count:
                step = min(_CHUNK, position)
                position -= step
                file.seek(position)
                data = file.read(step) + data
    except OSError:
        return []
    return [line[:_LONGEST_LINE] for line in data.decode(errors="replace").splitlines()[-count:]]


async def follow_lines(
    folder_of: Callable[[], Path | None], is_over: Callable[[], bool], count: int
) -> AsyncIterator[str]:
    """Yield the last lines, then new ones; goes on in the folder of the next run, until it is over.

    Both functions may block.
    """
    folder = await asyncio.to_thread(folder_of)
    position = 0
    if folder is not None:
        # The position first: a line that is written meanwhile comes twice rather than never.
        position = _size(folder / LOG)
        for line in await asyncio.to_thread(last_lines, folder, count):
            yield line
    inode, rest = _inode(folder), b""
    while True:
        over = await asyncio.to_thread(is_over)
        current = await asyncio.to_thread(folder_of)
        if current != folder or _inode(current) != inode:
            folder, inode, position = current, _inode(current), 0
        data = _read(folder, position)
        position += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for one in lines:
            yield one.decode(errors="replace")[:_LONGEST_LINE]
        if over and not data:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _read(folder: Path | None, position: int) -> bytes:
    try:
        with open((folder or Path()) / LOG, "rb") as file:
            file.seek(position)
            return file.read(16 * _CHUNK)
    except OSError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _inode(folder: Path | None) -> int:
    try:
        return (folder or Path()).joinpath(LOG).stat().st_ino
    except OSError:
        return 0
