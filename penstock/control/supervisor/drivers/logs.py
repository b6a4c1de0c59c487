"""The output of drivers: the last lines, and new ones as they are written."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LOG = "driver.log"
START_LOG = "start.log"
# As a driver of a pool writes it: penstock.driver.output.
_LABEL = re.compile(r"\[job ([\w-]+)\] ")
_POLL_SECONDS = 0.5
_CHUNK = 64 * 1024
_LONGEST_LINE = 64 * 1024


@dataclass(frozen=True)
class LogOf:
    """The log of a job: the folder of its driver, and its label in it if others share the driver."""

    folder: Path
    label: str | None = None

    def shown(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of the job without its label, and those without any: of the JVM, and of Python workers.

        >>> list(LogOf(Path(), "a").shown(["[job a] 1", "[job b] 2", "INFO 3"]))
        ['1', 'INFO 3']
        """
        for line in lines:
            found = _LABEL.match(line) if self.label is not None else None
            if found is None:
                yield line
            elif found[1] == self.label:
                yield line[found.end() :]


def last_lines(log: LogOf, count: int) -> list[str]:
    """Return the last lines of a driver's log, over its rotated files; what it printed before it had one, if none."""
    if count <= 0:
        return []
    found: deque[str] = deque(maxlen=count)
    files = [log.folder / f"{LOG}.{number}" for number in (2, 1)]
    # Of a shared one, all are read: many lines may be those of others.
    enough = count if log.label is None else sys.maxsize
    for path in (log.folder / START_LOG, *files, log.folder / LOG):
        found.extend(log.shown(_tail(path, enough)))
    return list(found)


def _tail(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, reading it from its end."""
    try:
        with path.open("rb") as file:
            position = file.seek(0, os.SEEK_END)
            data = b""
            while position > 0 and data.count(b"\n") <= count:
                step = min(max(_CHUNK, len(data)), position)
                position -= step
                file.seek(position)
                data = file.read(step) + data
    except OSError:
        return []
    return [line[:_LONGEST_LINE] for line in data.decode(errors="replace").splitlines()[-count:]]


async def follow_lines(
    log_of: Callable[[], LogOf | None], is_over: Callable[[], bool], count: int
) -> AsyncIterator[str]:
    """Yield the last lines, then new ones; goes on in the folder of the next run, until it is over.

    Both functions may block.
    """
    log = await asyncio.to_thread(log_of)
    position = 0
    if log is not None:
        # The position first: a line that is written meanwhile comes twice rather than never.
        position = _size(log.folder / LOG)
        for line in await asyncio.to_thread(last_lines, log, count):
            yield line
    inode, rest = _inode(log), b""
    while True:
        over = await asyncio.to_thread(is_over)
        current = await asyncio.to_thread(log_of)
        if current != log or _inode(current) != inode:
            log, inode, position = current, _inode(current), 0
        data = _read(log, position)
        position += len(data)
        *lines, rest = (rest + data).split(b"\n")
        texts = [one.decode(errors="replace") for one in lines]
        for text in log.shown(texts) if log is not None else texts:
            yield text[:_LONGEST_LINE]
        if over and not data:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _read(log: LogOf | None, position: int) -> bytes:
    try:
        with open((log.folder if log else Path()) / LOG, "rb") as file:
            file.seek(position)
            return file.read(16 * _CHUNK)
    except OSError:
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _inode(log: LogOf | None) -> int:
    try:
        return (log.folder if log else Path()).joinpath(LOG).stat().st_ino
    except OSError:
        return 0
