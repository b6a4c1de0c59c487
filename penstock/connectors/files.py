"""Files that are read once each, whole folders and globs too."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors import listing, parquet
from penstock.connectors.csv_format import BOM, header
from penstock.connectors.file_cuts import LESS, Part, Range, pieces, reach
from penstock.connectors.file_log import FileLog, LoggedFile
from penstock.connectors.file_sink import FileSink as FileSink
from penstock.connectors.formats import FORMATS, declared, guess_format, parser
from penstock.connectors.lines import Block, average_line, first_bytes, read_gzip, read_lines, shorter
from penstock.connectors.rejects import checked_on_error, enforce
from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import BadValue, CheckpointDamaged, MissingInput, PenstockError, SourceFailed, choices
from penstock.folders import Folder
from penstock.folders import folder as to_folder
from penstock.schema import Schema

SAMPLE = 64 << 10
NEXT_FILES = 64


class FileSource(Source):
    """csv, json, text or Parquet files: one, a folder with all below it, or a glob.

    Guarantee: exactly once. Each file is read once, as long as it was when it was found: what is added to
    it later is not read, so move files in whole; a last line that was then half written is rejected, as is one
    of more than 16 MiB. Names that start with _ or . or end in .tmp are left out.
    Files are read in the order of their age; the order is kept in the checkpoint.
    """

    def __init__(
        self,
        path: str,
        schema: Schema | None = None,
        format: str | None = None,
        on_error: str = "reject",
        *,
        base: str | None = None,
    ) -> None:
        """Take a path, below `base` unless it is absolute; Parquet's schema may be left to the first file."""
        self._given, self._chosen = path, format
        self._path = os.path.normpath(os.path.join(base or "", path))
        self._driver_at = os.getcwd()
        self.name = listing.source_name(path)
        self.format = _format(self._path, format)
        self.schema = self._schema(schema)
        self.on_error = checked_on_error(on_error)
        self._log: FileLog | None = None
        self._folder: Folder | None = None
        self._found: list[tuple[str, int]] = []

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON."""
        return {
            "kind": "files",
            "path": self._given,
            "schema": self.schema.ddl,
            "format": self._chosen,
            "on_error": self.on_error,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> FileSource:
        """Rebuild it from `spec()`."""
        schema = Schema(spec["schema"])
        return cls(spec["path"], schema, spec["format"], spec["on_error"])

    def under(self, folder: str) -> None:
        """Look for the path below this folder, unless it is absolute."""
        self._path = os.path.normpath(os.path.join(folder, self._given))
        self._driver_at = os.getcwd()

    def check(self) -> None:
        """Raise MissingInput if there is nothing to read, or it may not be read."""
        listing.refuse_missing(self._path)

    def open(self, folder: str | Folder) -> None:
        """Keep the log of found files in this folder."""
        self._folder, self._log = to_folder(folder), None

    @property
    def where(self) -> str:
        """The file, folder or glob that is read."""
        return self._path

    def paths(self) -> list[str]:
        """Return the files that are there now."""
        return [path for path, _ in listing.new_files(self._path, self._keep)]

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return how far one may read; new files on the way are put in the log."""
        begin, most = int(start.get("0", 0)), math.inf if max_rows is None else max(1.0, max_rows)
        while True:
            at, rows = begin, most
            log, fresh = self._refreshed(at), list[LoggedFile]()
            for part in itertools.chain(log.between(at, log.end), self._discovered(log, fresh)):
                units, count = reach(part, rows)
                at, rows = at + units, rows - count
                if max_rows and rows <= most * LESS:
                    break
            if log.append(fresh):
                return {"0": at}
            # The planner of the pipeline's other query found files in the same moment: take in its order.
            self._found = []

    def behind(self, offsets: Offsets) -> int:
        """Return about how many rows are there after these offsets; of many new files, only the next ones count."""
        at = int(offsets.get("0", 0))
        log = self._refreshed(at)
        new = itertools.islice(self._discovered(log, []), NEXT_FILES)
        return round(sum(reach(part, math.inf)[1] for part in itertools.chain(log.between(at, log.end), new)))

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[tuple[Range, ...]]:
        """Cut a range into about as many even pieces as there are tasks; small files share one."""
        first, last = int(start.get("0", 0)), int(end["0"])
        return pieces(list(self._refreshed(last).between(first, last)), parallelism)

    def read_split(self, split: Sequence[Range]) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one piece."""
        return enforce((item for part in split for item in self._rows(part)), self.on_error, self.name)

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range."""
        for split in self.splits({"0": start or 0}, {"0": end}, 1):
            yield from self.read_split(split)

    def ended(self, offsets: Offsets) -> bool:
        """Say whether all files that are there now were read."""
        log = self._refreshed()
        if int(offsets.get("0", 0)) < log.end:
            return False
        return listing.any_file(self._path, self._keep, log.known) is None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get their ranges whole; ten thousand logged files would only slow them down.
        return self.__dict__ | {"_log": None, "_found": []}

    def _refreshed(self, offset: int = 0) -> FileLog:
        self._log = self._log or FileLog(self._folder)
        self._log.refresh()
        if offset > self._log.end:
            message = f"the log of found files {self._log.where} ends before the offset {offset}"
            raise CheckpointDamaged(message, node=self.name, hint="restore the checkpoint as a whole")
        return self._log

    def _discovered(self, log: FileLog, fresh: list[LoggedFile]) -> Iterator[Part]:
        """Yield new files until no more are asked for; the rest is kept for the next time."""
        if not self._found:
            self._found = listing.new_files(self._path, self._keep, log.known)
        while self._found:
            path, size = self._found.pop(0)
            if path in log.known or not os.path.exists(path):
                continue
            try:
                fresh.append(self._described(path, size))
            except PenstockError:
                # What was taken from the list and not logged must be found again.
                self._found = []
                raise
            if fresh[-1].units:
                yield fresh[-1], 0, fresh[-1].units

    def _described(self, path: str, size: int) -> LoggedFile:
        if self.format == "parquet":
            rows = parquet.row_groups(path, self.schema)
            return LoggedFile(path, size, len(rows), rows)
        with _failures(path):
            sample = first_bytes(path, SAMPLE)
        head, columns = _head(sample, self.format, self.schema, path)
        line = average_line(sample)
        if not path.endswith(".gz"):
            return LoggedFile(path, size, size, head=head, line=line, columns=columns)
        # Text shrinks to about a quarter; only the size of epochs depends on this guess.
        rows = (int(4 * size / line) + 1,)
        return LoggedFile(path, size, 1, rows, head=head, line=line, columns=columns)

    def _rows(self, part: Range) -> Iterator[pa.RecordBatch | Rejected]:
        if os.getcwd() != self._driver_at:  # an executor of a cluster
            part = part._replace(path=os.path.join(self._driver_at, part.path))
        if self.format == "parquet":
            yield from parquet.read_groups(part.path, part.first, part.last, self.schema, part.size)
            return
        text = parser(self.format, self.schema, part.columns or None)
        with _failures(part.path):
            for block in _blocks(part):
                yield from [block] if isinstance(block, Rejected) else text.parse(block[1], part.path, block[0])

    def _keep(self, path: str) -> bool:
        """Say whether a file belongs to the source: all do, if the format was named."""
        return self._chosen is not None or guess_format(path) == self.format

    def _schema(self, schema: Schema | None) -> Schema:
        if self.format != "parquet" or schema is not None:
            return declared(schema, self.format, self._given)
        found = listing.new_files(self._path, self._keep)
        if not found:
            message = f"there is no Parquet file at {self._path!r} to read the schema from"
            raise MissingInput(message, hint="check the path, or pass schema=")
        return parquet.read_schema(found[0][0])


def _format(path: str, chosen: str | None) -> str:
    if chosen is not None:
        if chosen not in FORMATS:
            message = f"format {chosen!r} is not known"
            raise BadValue(message, hint=choices("formats", FORMATS, chosen))
        return chosen
    named = guess_format(path)
    if named is None:
        listing.refuse_missing(path)
        some = listing.any_file(path, lambda file: guess_format(file) is not None)
        named = guess_format(some) if some else None
    if named is None:
        message = f"the format of {path!r} does not show in its name"
        raise BadValue(message, hint=f"pass format= with one of {', '.join(FORMATS)}")
    return named


def _head(sample: bytes, format: str, schema: Schema, path: str) -> tuple[int, tuple[str, ...]]:
    """Return where the rows begin, and the columns of a csv header."""
    mark = len(BOM) if sample.startswith(BOM) else 0
    line = sample[mark:].split(b"\n", 1)[0]
    columns = header(line, schema, path) if format == "csv" else None
    if columns is None:
        return mark, ()
    return min(len(sample), mark + len(line) + 1), tuple(columns)


def _blocks(part: Range) -> Iterator[Block]:
    if part.path.endswith(".gz"):
        return read_gzip(part.path, part.head)
    if os.path.getsize(part.path) < part.size:
        raise shorter(part.path)
    return read_lines(part.path, part.first, part.last, part.head, part.size)


@contextlib.contextmanager
def _failures(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        message = f"{path} was found earlier and is gone"
        hint = "put it back: its rows are part of an epoch that is not yet finished"
        raise SourceFailed(message, hint=hint) from error
    except (OSError, EOFError, zlib.error) as error:
        message = f"{path} cannot be read: {error}"
        hint = "check its permissions, and that it is whole; then write it again under the same name"
        raise SourceFailed(message, hint=hint) from error
