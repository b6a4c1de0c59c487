"""The source of standard input, which is copied to the checkpoint so that it can be replayed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.connectors.formats.csv.decoder import BOM
from penstock.connectors.formats.csv.header import assumed, beginning
from penstock.connectors.formats.csv.options import UTF8, CsvOptions
from penstock.connectors.formats.csv.records import CsvRecords
from penstock.connectors.formats.lines import average_line, read_lines
from penstock.connectors.formats.parsers import declared, parser
from penstock.connectors.ranges import split_range
from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import BadValue, CheckpointDamaged, SettingsError, SourceFailed, one_of
from penstock.schema import Schema
from penstock.storage.durable_files import make_folders, read_text, sync, write_text
from penstock.storage.folders import Folder
from penstock.storage.folders import folder as to_folder
from penstock.storage.journals import LOST

SPOOL, END = "spool", "end"
_FORMATS = ("text", "csv", "json")
_SAMPLE = 64 << 10
_LEAST = 1 << 20
_LEAST_PIECE = 256 << 10
# The most bytes that are buffered ahead of the job, unless it spills.
AHEAD = 64 << 20
_POLL_SECONDS = 0.05


class StdinSource(Source):
    """Lines of text, csv or json from the process's standard input.

    Guarantee: exactly once for what was copied to the checkpoint before a crash. Lines that the sender
    wrote and this process had not yet taken are lost with the pipe. A restarted job goes on with its own
    standard input. A sender that is 64 MiB ahead of the job waits, unless the job spills.
    """

    can_spill = repeats_splits = True

    stream: BinaryIO | None = None
    """What is read instead of standard input, for tests."""

    def __init__(self, schema: Schema | None = None, format: str = "text", options: CsvOptions | None = None) -> None:
        one_of(format, _FORMATS, "format", "stdin")
        self.name, self.format = "stdin", format
        self.schema = declared(schema, format, "stdin")
        self.options = options or CsvOptions()
        self.options.refuse_other_formats(format, "stdin")
        if self.options.encoding != UTF8:
            message = f"stdin: encoding={self.options.encoding!r} cannot be used"
            raise BadValue(message, hint=f"standard input is read as UTF-8: iconv -f {self.options.encoding} -t utf-8")
        self._folder: Folder | None = None
        self._copier: threading.Thread | None = None
        self._stop = threading.Event()
        self._stored = -1

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        return {"kind": "stdin", "schema": self.schema.ddl, "format": self.format} | self.options.given()

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> StdinSource:
        """Rebuild it from `spec()`."""
        return cls(Schema(spec["schema"]), spec["format"], CsvOptions.from_spec(spec))

    def open(self, folder: str | Folder) -> None:
        """Store the lines in this folder, which must be local: they are appended in small writes."""
        self._folder = to_folder(folder)
        if self._folder.local is None:
            message = f"stdin stores its lines in the checkpoint, and {self._folder} is not a local folder"
            hint = "choose a --checkpoint folder here, or pipe the lines into a topic: `penstock produce TOPIC`"
            raise SettingsError(message, node=self.name, hint=hint)

    def start_background(self) -> None:
        """Start to copy standard input; called in the driver."""
        self._repair()
        self._stop.clear()
        stream = self.stream or sys.stdin.buffer
        self._copier = threading.Thread(target=self._copy, args=(stream,), name="stdin", daemon=True)
        self._copier.start()

    def stop_background(self) -> None:
        """Stop copying after the next read; a blocked read ends with the process."""
        self._stop.set()

    def initial(self) -> Offsets:
        """Return the offsets before the first line."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the bytes up to which the next epoch reads: complete lines, unless the input has ended."""
        begin, end = int(start.get("0", 0)), self._whole()
        self._refuse_lost(begin)
        self._store_progress(begin)
        if max_rows is not None:
            reach = int(max_rows * average_line(self._sample(begin)))
            end = min(end, begin + max(_LEAST, reach))
        if end > begin:
            # Once per epoch: offsets are synced, and must not be ahead of the lines after a power cut.
            sync(self._file(SPOOL))
        return {"0": max(begin, end)}

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Divide the bytes into splits of about the same size, each with the position of the first row."""
        first, last = int(start.get("0", 0)), int(end["0"])
        if first >= last:
            return []
        self._refuse_lost(last)
        sample = self._sample(0)
        head, columns = len(BOM) if sample.startswith(BOM) else 0, tuple[str, ...]()
        if self.format == "csv":
            head, columns = beginning(sample, self.schema, self.name, self.options)
        return [(lo, hi, head, columns) for lo, hi in split_range(first, last, parallelism, _LEAST_PIECE)]

    def read_split(self, split: Any) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one split."""
        first, last, head, columns = split
        text = parser(self.format, self.schema, columns or None, self.options)
        records = CsvRecords(self.options, len(columns or self.schema.names)) if self.format == "csv" else None
        spool = self._file(SPOOL)
        for block in read_lines(spool, first, last, head, os.path.getsize(spool), records):
            rows = [block] if isinstance(block, Rejected) else text.parse(block[1], self.name, block[0])
            for row in rows:
                is_first = isinstance(row, Rejected) and not columns and row.position == f"{self.name}:{head}"
                if is_first and self.format == "csv":
                    row = replace(row, reason=assumed(row.reason, self.options))
                yield row

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range of bytes."""
        for split in self.splits({"0": start or 0}, {"0": end}, 1):
            yield from self.read_split(split)

    def ended(self, offsets: Offsets) -> bool:
        """Return whether the input has ended and all of it was read."""
        return os.path.exists(self._file(END)) and int(offsets.get("0", 0)) >= self._whole()

    def __getstate__(self) -> dict[str, Any]:
        # The thread and what it reads belong to the driver.
        return {k: v for k, v in self.__dict__.items() if k not in ("_copier", "_stop", "stream")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"_copier": None, "_stop": threading.Event()}

    def _file(self, name: str) -> str:
        if self._folder is None or self._folder.local is None:
            message = "stdin has no folder to store its lines in"
            raise SourceFailed(message, node=self.name, hint="call open(folder) first")
        return str(self._folder.local / name)

    def _sample(self, at: int) -> bytes:
        with open(self._file(SPOOL), "rb") if self._size() else open(os.devnull, "rb") as file:
            file.seek(at)
            return file.read(_SAMPLE)

    def _size(self) -> int:
        spool = self._file(SPOOL)
        return os.path.getsize(spool) if os.path.exists(spool) else 0

    def _whole(self) -> int:
        """Return the end of the last complete line; when the input has ended, a line without line feed counts."""
        ended, size = os.path.exists(self._file(END)), self._size()
        return size if ended else _last_line(self._file(SPOOL), size)

    def _refuse_lost(self, read: int) -> None:
        """Raise if lines that were read are gone: the next input would be taken for them, and skipped."""
        if (size := self._size()) < read:
            message = f"{self._file(SPOOL)} ends at {size}, and the newest epoch has read up to {read}"
            raise CheckpointDamaged(message, node=f"read '{self.name}'", hint=LOST)

    def _store_progress(self, begin: int) -> None:
        """Store what the job has read, for the copier in another process."""
        if begin != self._stored:
            write_text(self._file("read"), str(begin))
            self._stored = begin

    def _is_ahead(self, taken: int) -> bool:
        if self.spills or taken < AHEAD:
            return False
        return taken - int(read_text(self._file("read")) or 0) >= AHEAD

    def _repair(self) -> None:
        """Repair the spool of an earlier run: complete lines, and no end marker."""
        spool, end = self._file(SPOOL), self._file(END)
        make_folders([os.path.dirname(spool)])
        ended, size = os.path.exists(end), self._size()
        whole = _last_line(spool, size)
        with open(spool, "ab") as file:
            if ended and whole < size:
                file.write(b"\n")
            else:
                file.truncate(whole)
        # Before the marker goes: without it a last line that lacks its line feed is not a line.
        sync(spool)
        if ended:
            os.remove(end)
        # Before more lines come: with the marker, a part of one would be taken for a complete line.
        sync(os.path.dirname(spool))

    def _copy(self, stream: BinaryIO) -> None:
        with open(self._file(SPOOL), "ab") as spool:
            while not self._stop.is_set():
                if self._is_ahead(spool.tell()):
                    self._stop.wait(_POLL_SECONDS)
                    continue
                data = stream.read1(_SAMPLE)  # type: ignore[attr-defined]
                if not data:
                    spool.flush()
                    # With the marker, a part of the last line would be taken for all of it.
                    os.fsync(spool.fileno())
                    write_text(self._file(END), "")
                    return
                spool.write(data)
                spool.flush()


def stored_lines(folder: Folder) -> tuple[int, int]:
    """Return where the complete lines of a spool end, and the size of all that is in it."""
    size = folder.files().get(SPOOL, 0)
    if folder.local is None or folder.read(END) is not None:
        return size, size
    return _last_line(str(folder.local / SPOOL), size), size


def _last_line(path: str, size: int) -> int:
    """Return the position after the last line feed before `size`."""
    if not size:
        return 0
    with open(path, "rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - _SAMPLE)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0
