"""The file source: single files, folders and globs; each file is read once."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pyarrow as pa

from penstock.connectors.files import changed_files as file_changes
from penstock.connectors.files import listing
from penstock.connectors.files.changed_files import ChangeWatch, OnChange
from penstock.connectors.files.file_log import LESS, FileLog, LoggedFile, Part, Range, pieces, reach
from penstock.connectors.formats import parquet
from penstock.connectors.formats.csv.decoder import BOM
from penstock.connectors.formats.csv.header import assumed, beginning
from penstock.connectors.formats.csv.options import UTF8, CsvOptions
from penstock.connectors.formats.csv.records import CsvRecords
from penstock.connectors.formats.lines import Block, average_line, first_bytes, read_lines, read_stream, shorter
from penstock.connectors.formats.parsers import FORMATS, OnError, declared, enforce, guess_format, parser
from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import BadValue, CheckpointDamaged, MissingInput, PenstockError, SourceFailed, one_of
from penstock.schema import Schema
from penstock.storage.folders import Folder
from penstock.storage.folders import folder as to_folder

SAMPLE = 64 << 10
NEXT_FILES = 64


class FileSource(Source):
    """Reads csv, json, text or Parquet files: one file, a folder with its subfolders, or a glob.

    Guarantee: exactly once. Each file is read once, up to the size at which it was found: data appended later is not
    read, so move complete files into the folder. An incomplete last line is rejected, as is a line of more than
    16 MiB. A file that changed after it was found is reported, or stops the job with `on_change="fail"`. Hidden and
    temporary files are skipped: names that start with _ or . or end with one of `listing.IGNORED_ENDINGS`. Files are
    read by age, oldest first; the order is stored in the checkpoint.
    """

    repeats_splits = True

    def __init__(
        self,
        path: str,
        schema: Schema | None = None,
        format: str | None = None,
        on_error: str = "reject",
        *,
        base: str | None = None,
        options: CsvOptions | None = None,
        on_change: str = "warn",
    ) -> None:
        """Take a path, relative to `base`; for Parquet the schema defaults to that of the first file."""
        self.options = options or CsvOptions()
        self._given, self._chosen = path, format
        self._path = os.path.normpath(os.path.join(base or "", path))
        self._driver_at = os.getcwd()
        self.name = listing.source_name(path)
        self.format = _format(self._path, format)
        self.options.refuse_other_formats(self.format, self.name)
        self.schema = self._schema(schema)
        self.on_error: OnError = one_of(on_error, get_args(OnError), "on_error", "read_files")
        self.on_change: OnChange = one_of(on_change, get_args(OnChange), "on_change", "read_files")
        self._log: FileLog | None = None
        self._folder: Folder | None = None
        self._found: list[listing.ListedFile] = []
        self._watch = ChangeWatch(self.on_change)
        self._warned = 0

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        made = {
            "kind": "files",
            "path": self._given,
            "schema": self.schema.ddl,
            "format": self._chosen,
            "on_error": self.on_error,
        }
        # Defaults are left out, so that older plans stay equal.
        changes = {"on_change": self.on_change} if self.on_change != "warn" else {}
        return made | self.options.given() | changes

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> FileSource:
        """Rebuild it from `spec()`."""
        schema, options = Schema(spec["schema"]), CsvOptions.from_spec(spec)
        more = {"options": options, "on_change": spec.get("on_change", "warn")}
        return cls(spec["path"], schema, spec["format"], spec["on_error"], **more)

    def set_base_path(self, folder: str) -> None:
        """Resolve the path relative to this folder."""
        self._path = os.path.normpath(os.path.join(folder, self._given))
        self._driver_at = os.getcwd()

    def check(self) -> None:
        """Raise MissingInput if the path does not exist; log if there is no file yet."""
        listing.check_exists(self._path)
        listing.report_waiting(self._path, self._keep)

    def open(self, folder: str | Folder) -> None:
        """Store the log of found files in this folder."""
        self._folder, self._log, self._watch = to_folder(folder), None, ChangeWatch(self.on_change)
        # Warnings are reported once, by the run that found the change; counts include all runs.
        self._warned = len(self._refreshed().changes)

    @property
    def where(self) -> str:
        """The file, folder or glob that is read."""
        return self._path

    def paths(self) -> list[str]:
        """Return the current files."""
        return [file.path for file in listing.new_files(self._path, self._keep)]

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the end of the next epoch, and log the new files in it."""
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
            # The planner of the pipeline's other query logged files at the same time: use its order.
            self._found = []

    def warnings(self) -> list[str]:
        """Return warnings about files that changed after they were found, since the last call."""
        changes = self._refreshed().changes
        news, self._warned = changes[self._warned :], len(changes)
        return list(file_changes.warnings(self.name, news))

    def changed_inputs(self) -> int:
        """Return how many files changed after they were found, over all runs of the checkpoint."""
        return len({change.path for _, change in self._refreshed().changes})

    def lag(self, offsets: Offsets) -> int:
        """Return about how many rows there are after these offsets; of many new files only the next are counted."""
        at = int(offsets.get("0", 0))
        log = self._refreshed(at)
        new = itertools.islice(self._discovered(log, []), NEXT_FILES)
        return round(sum(reach(part, math.inf)[1] for part in itertools.chain(log.between(at, log.end), new)))

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[tuple[Range, ...]]:
        """Divide a range into about as many even splits as there are tasks; small files share one."""
        first, last = int(start.get("0", 0)), int(end["0"])
        return pieces(list(self._refreshed(last).between(first, last)), parallelism)

    def read_split(self, split: Sequence[Range]) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of one split."""
        return enforce((item for part in split for item in self._rows(part)), self.on_error, self.name)

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of a range."""
        for split in self.splits({"0": start or 0}, {"0": end}, 1):
            yield from self.read_split(split)

    def ended(self, offsets: Offsets) -> bool:
        """Return whether all current files were read."""
        log = self._refreshed()
        if int(offsets.get("0", 0)) < log.end:
            return False
        if listing.any_file(self._path, self._keep, log.known.__contains__) is not None:
            return False
        self._watch.compare_all(log)
        return True

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need only their ranges; ten thousand logged files would slow them down.
        return self.__dict__ | {"_log": None, "_found": []}

    def _refreshed(self, offset: int = 0) -> FileLog:
        self._log = self._log or FileLog(self._folder)
        self._log.refresh()
        if offset > self._log.end:
            message = f"the log of found files {self._log.where} ends before the offset {offset}"
            raise CheckpointDamaged(message, node=self.name, hint="restore the checkpoint as a whole")
        return self._log

    def _discovered(self, log: FileLog, fresh: list[LoggedFile]) -> Iterator[Part]:
        """Yield new files on demand; the rest stays in the list for the next call."""
        if not self._found:
            self._found = listing.new_files(self._path, self._keep, partial(self._watch.known, log))
            self._watch.listed()
        while self._found:
            found = self._found.pop(0)
            if found.path in log.known or not os.path.exists(found.path):
                continue
            try:
                fresh.append(self._described(found))
            except PenstockError:
                # Files that were taken from the list and not logged must be found again.
                self._found = []
                raise
            if fresh[-1].units:
                yield fresh[-1], 0, fresh[-1].units

    def _described(self, found: listing.ListedFile) -> LoggedFile:
        path, size, modified = found
        if self.format == "parquet":
            rows = parquet.row_groups(path, self.schema)
            return LoggedFile(path, size, len(rows), rows, modified=modified)
        with _translated_errors(path):
            sample = first_bytes(path, SAMPLE, self.options.encoding)
        head, columns = self._head(sample, path)
        line = average_line(sample)
        whole = self._is_read_whole(path, sample[head:], columns)
        if not whole:
            return LoggedFile(path, size, size, head=head, line=line, columns=columns, modified=modified)
        # Compressed text shrinks to about a quarter; only the size of epochs depends on this guess.
        rows = (int((4 if path.endswith(".gz") else 1) * size / line) + 1,)
        return LoggedFile(path, size, 1, rows, head, line, columns, modified, whole)

    def _is_read_whole(self, path: str, sample: bytes, columns: Sequence[str]) -> bool:
        """Return whether one task reads the whole file: it cannot be split, or row starts are costly to find."""
        if path.endswith(".gz") or self.options.encoding != UTF8:
            return True
        records = self._records(columns)
        return records is not None and records.has_any(sample)

    def _head(self, sample: bytes, path: str) -> tuple[int, tuple[str, ...]]:
        """Return the position of the first row, and the columns of a csv header."""
        if self.format == "csv":
            return beginning(sample, self.schema, path, self.options)
        return len(BOM) if sample.startswith(BOM) else 0, ()

    def _records(self, columns: Sequence[str]) -> CsvRecords | None:
        return CsvRecords(self.options, len(columns or self.schema.names)) if self.format == "csv" else None

    def _rows(self, part: Range) -> Iterator[pa.RecordBatch | Rejected]:
        # An executor of a cluster is in another folder, and so is a JVM that was started before the folder was changed.
        # Rejected rows have the path that the user gave in any case.
        here = os.getcwd() == self._driver_at
        found = part if here else part._replace(path=os.path.join(self._driver_at, part.path))
        if self.format == "parquet":
            yield from parquet.read_groups(found.path, part.first, part.last, self.schema, part.size)
            return
        text = parser(self.format, self.schema, part.columns or None, self.options)
        with _translated_errors(found.path):
            for block in self._blocks(found):
                rows = [block] if isinstance(block, Rejected) else text.parse(block[1], part.path, block[0])
                yield from (self._explained(row, part) if isinstance(row, Rejected) else row for row in rows)

    def _blocks(self, part: Range) -> Iterator[Block]:
        records, encoding = self._records(part.columns), self.options.encoding
        if part.path.endswith(".gz") or encoding != UTF8:
            return read_stream(part.path, part.head, encoding, records)
        if os.path.getsize(part.path) < part.size:
            raise shorter(part.path)
        first, last = (0, part.size) if part.whole else (part.first, part.last)
        return read_lines(part.path, first, last, part.head, part.size, records)

    def _explained(self, row: Rejected, part: Range) -> Rejected:
        """Add to a reason what was assumed: the encoding, and that the first line is not a header."""
        if self.options.encoding != UTF8 and row.reason.startswith("not UTF-8"):
            row = replace(row, reason=f"not {self.options.encoding}: invalid bytes")
        if self.format == "csv" and not part.columns and row.position == f"{part.path}:{part.head}":
            row = replace(row, reason=assumed(row.reason, self.options))
        return row

    def _keep(self, path: str) -> bool:
        """Return whether a file belongs to the source: all do, if the format was given."""
        return self._chosen is not None or guess_format(path) == self.format

    def _schema(self, schema: Schema | None) -> Schema:
        if self.format != "parquet" or schema is not None:
            return declared(schema, self.format, self._given)
        found = listing.new_files(self._path, self._keep)
        if not found:
            message = f"there is no Parquet file at {self._path!r} to read the schema from"
            raise MissingInput(message, hint="check the path, or pass schema=")
        return parquet.read_schema(found[0].path)


def _format(path: str, chosen: str | None) -> str:
    if chosen is not None:
        return str(one_of(chosen, FORMATS, "format", "read_files"))
    named = guess_format(path)
    if named is None:
        listing.check_exists(path)
        some = listing.any_file(path, lambda file: guess_format(file) is not None)
        named = guess_format(some) if some else None
    if named is None:
        message = f"cannot infer the format of {path!r} from its name"
        raise BadValue(message, node="read_files", hint=f"pass format= with one of {', '.join(FORMATS)}")
    return named


@contextlib.contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        message = f"{path} was found earlier and is missing now"
        hint = "restore it: its rows belong to an epoch that is not committed yet"
        raise SourceFailed(message, hint=hint) from error
    except (OSError, EOFError, zlib.error) as error:
        message = f"{path} cannot be read: {error}"
        hint = "check its permissions, and that it is complete; then write it again under the same name"
        raise SourceFailed(message, hint=hint) from error
