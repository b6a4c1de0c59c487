"""Everything that a driver and its processes print, in `driver.log`: bounded, and never in anybody's way.

Standard output and error of the process become one pipe, which the JVM and Python workers inherit. A thread drains it
into files that are rotated; what cannot be written, because the disk is full, is dropped.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import io
import os
import select
import sys
import termios
import threading
import time
from pathlib import Path
from typing import IO

from penstock.observe.thread_labels import current_label

LOG = "driver.log"
MAX_BYTES = 10 * 1024 * 1024
FILES = 3
LABEL = "[job {}] "
_LONGEST_REST = 64 * 1024
_CHUNK = 64 * 1024
_FLUSH_POLL_SECONDS = 0.01


class RotatingFile:
    """A log file with at most `max_bytes`; of the older ones, `PATH.1` is the newest. `files` counts all of them."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, files: int = FILES) -> None:
        self.path, self._max_bytes, self._files = path, max_bytes, files
        self._file: IO[bytes] | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append, and start a new file where one is full; drops what cannot be written."""
        while data:
            with contextlib.suppress(OSError):
                file = self._open()
                room = max(self._max_bytes - self._size, 1)
                file.write(data[:room])
                self._size += len(data[:room])
                data = data[room:]
                if self._size >= self._max_bytes:
                    self._rotate()
                continue
            return

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            faulthandler.disable()
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        if self._file is None:
            # Unbuffered: whoever follows the log, or reads it after a kill -9, sees all of it.
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open until the next rotation
            self._size = self._file.tell()
            # The thread that drains the pipe would not outlive a crash of the interpreter.
            faulthandler.enable(self._file)
        return self._file

    def _rotate(self) -> None:
        self.close()
        self._size = 0
        for number in range(self._files - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path.with_name(f"{self.path.name}.{number - 1}") if number > 1 else self.path
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)


class LabelledStream(io.TextIOWrapper):
    """Standard output or error, where each line that a job of a pool prints begins with `[job ID] `.

    Processes that the driver starts, the JVM and Python workers, write past it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(
            open(number, "wb", closefd=False),  # noqa: SIM115 - until the end
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )
        self._rest: dict[str, str] = {}

    def write(self, text: str) -> int:
        """Write; of a job, only whole lines, so that those of two jobs are not mixed."""
        job = current_label()
        if job is None:
            return super().write(text)
        *lines, self._rest[job] = (self._rest.get(job, "") + text).split("\n")
        if len(self._rest[job]) > _LONGEST_REST:
            lines.append(self._rest.pop(job))
        if lines:
            super().write("".join(f"{LABEL.format(job)}{line}\n" for line in lines))
        return len(text)


class OutputCapture:
    """Sends standard output and error of this process, and of those that it starts, to a file."""

    def __init__(self, file: RotatingFile) -> None:
        self._file = file
        self._source, self._target = os.pipe()
        self._busy = False

    def start(self) -> None:
        """Capture from now on."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number in (1, 2):
            os.dup2(self._target, number)
        os.close(self._target)
        # New objects: the old ones may think that they write to a file, and seek in it.
        sys.stdout, sys.stderr = (LabelledStream(number) for number in (1, 2))
        threading.Thread(target=self._drain, name="driver-log", daemon=True).start()

    def flush(self, seconds: float = 2.0) -> None:
        """Wait until all that was printed is in the file, but not for long."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        until = time.monotonic() + seconds
        while (self._busy or _unread(self._source)) and time.monotonic() < until:
            time.sleep(_FLUSH_POLL_SECONDS)

    def _drain(self) -> None:
        while True:
            select.select([self._source], [], [])
            # Before it is read: `flush` must find either of the two.
            self._busy = True
            self._file.write(os.read(self._source, _CHUNK))
            self._busy = False


def _unread(pipe: int) -> int:
    count = fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0")
    return int.from_bytes(count, sys.byteorder)
