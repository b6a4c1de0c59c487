"""The sink that writes files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_args
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa

from penstock.connectors.files.columns import check_columns
from penstock.connectors.files.compaction import Compaction, CompactionConflict, merge_small_files
from penstock.connectors.files.ledger import Ledger, finish, has_epochs, staging_folder
from penstock.connectors.files.staging import Stage, Staged
from penstock.connectors.formats.csv.options import CsvOptions
from penstock.connectors.formats.writers import ENDINGS, refuse_types
from penstock.contracts import Epoch, Guarantee, Sink
from penstock.errors import BadSchema, BadValue, PenstockError, SinkFailed, UnknownColumn, choices, one_of
from penstock.masking import masked
from penstock.schema import Schema
from penstock.storage.file_names import file_name
from penstock.storage.stores import STAGED, open_store, resolve_url

# In a folder name `column=value`, most of the length that file systems allow is for the value.
_LONGEST_FOLDER = 120
_ABANDONED_AFTER = 7 * 24 * 3600


class FileSink(Sink):
    """Writes Parquet, csv or json files to a folder or an object store, in subfolders `column=value` if asked.

    Guarantee: exactly once. An epoch's files are staged in an internal folder; its ledger entry commits it, and then
    the files are renamed, also after a crash. Names do not change when an epoch is replayed. With a weaker guarantee
    files are written under their final names at once, without a ledger.
    """

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        path: str,
        format: str = "parquet",
        partition_by: Sequence[str] | str | None = None,
        guarantee: Guarantee | None = None,
        *,
        base: str = "",
        options: CsvOptions | None = None,
    ) -> None:
        """Take a folder or URL, relative to `base`."""
        one_of(format, ENDINGS, "format", "files")
        self.options = options or CsvOptions()
        self.options.refuse_other_formats(format, "files")
        self.options.refuse_unwritable()
        self.guarantee = guarantee or "exactly_once"
        one_of(self.guarantee, get_args(Guarantee), "guarantee", "files")
        self.format = format
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
        self.name = path.rstrip("/").rpartition("/")[2] or "files"
        self._given = path
        self._store = open_store(resolve_url(path, base))
        self._run = ""
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._schema: Schema | None = None

    @property
    def guarantee_reason(self) -> str:
        """How the sink achieves its guarantee."""
        if self.guarantee == "exactly_once":
            return "files are staged, and renamed once the ledger next to them has the epoch"
        return super().guarantee_reason

    def describe_target(self) -> str:
        """Return the folder."""
        return f"files '{masked(self._given)}'"

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        return {
            "kind": "files",
            "path": masked(self._given) if "://" in self._given else self._given,
            "format": self.format,
            "partition_by": list(self.partition_by),
            "guarantee": self.guarantee,
        } | self.options.given()

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> FileSink:
        """Rebuild it from `spec()`."""
        options = CsvOptions.from_spec(spec)
        return cls(spec["path"], spec["format"], spec["partition_by"], spec.get("guarantee"), options=options)

    def for_view(self, unique: tuple[str, ...] | None, removed: str, *, whole: bool) -> Sink:
        """Show a whole view in one file."""
        from penstock.connectors.files.whole_view import WholeViewSink  # it extends this one

        if not whole:
            message = f"files '{self.name}' cannot delete rows, as a view does"
            hint = (
                "pass whole=True, in SQL whole = 'true', for a file with the whole view; or write the changes: "
                "view.changes().to(files(...))"
            )
            raise BadValue(message, hint=hint)
        if self.format != "parquet" or self.partition_by or self.guarantee != "exactly_once":
            message = f"files '{self.name}': a whole view is one Parquet file, exactly once"
            raise BadValue(message, hint="leave out format=, partition_by= and guarantee=")
        return WholeViewSink(self._given, unique, removed)

    def set_base_path(self, folder: str) -> None:
        """Resolve the path relative to this folder or URL."""
        self._store = open_store(resolve_url(self._given, folder))

    def check(self) -> None:
        """Raise a SettingsError if files cannot be written."""
        with self._failures():
            self._store.check()

    def validate(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Check that the columns of `partition_by` exist, and fit in folder names."""
        for name in self.partition_by:
            if name not in schema:
                message = f"partition_by names the unknown column '{name}'"
                hint = choices("columns here", schema.names, name)
                raise UnknownColumn(message, node=f"files '{self.name}'", hint=hint)
            if len(quote(name, safe=" ")) > _LONGEST_FOLDER:
                message = f"column '{name}' of partition_by is too long for a folder's name"
                raise BadSchema(message, hint='rename it before: .rename(other="...")')

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Finish interrupted commits and compactions, and remove abandoned staged files."""
        refuse_types(self.format, schema)
        self.validate(schema, key)
        self._run, self._ledgers, self._schema = uuid4().hex, {}, schema
        with self._failures():
            # Another process may still be working on it.
            with contextlib.suppress(CompactionConflict):
                Compaction(self._store)
            staged = self._store.files(STAGED)
            if staged:
                finish(self._store, staged)
                self._store.remove(name for name, found in staged.items() if found.age > _ABANDONED_AFTER)

    def bind_lineage(self, lineage: str, sink: str) -> None:
        """Check the columns against existing files; take over the ledger, so that no earlier run can commit."""
        if self._schema is not None:
            with self._failures():
                check_columns(self._store, self.format, sink, self._schema)
        self.committed(Epoch(lineage, sink, 0))

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Return the newest epoch in the ledger."""
        if self.guarantee != "exactly_once":
            return {}
        with self._failures():
            ledger = self._ledger(Epoch(lineage, sink, 0))
        return {ledger.epoch: ledger.bounds} if ledger.epoch >= 0 else {}

    def used_before(self, sink: str) -> bool:
        """Search for a ledger of that name."""
        with self._failures():
            return self.guarantee == "exactly_once" and has_epochs(self._store, sink)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Write the rows of one partition, to staged files if the sink has a ledger."""
        # A renamed sink may share its folder with another sink.
        sink = "" if epoch.sink == self.name else f"-{file_name(epoch.sink)}"
        name = f"part-{quote(epoch.lineage, safe='')}{sink}-{epoch.number:08}-{partition}"
        folder, shown = staging_folder(epoch, self._run), self.guarantee != "exactly_once"
        with self._store.translated_errors(self.name):
            stage = Stage(self._store, folder, self.format, name, shown=shown, options=self.options)
            return stage.written(batches, self.partition_by)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Write the ledger entry, then rename the files; an epoch that is in the ledger is only completed."""
        if self.guarantee == "exactly_once":
            if not self.committed(epoch):
                with self._failures():
                    self._record(epoch, [file for token in tokens for file in token])
            self.abort(epoch, tokens)

    def abort(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Remove what is still staged."""
        if self.guarantee == "exactly_once":
            with self._failures():
                self._store.remove(file["staged"] for token in tokens for file in token)

    def committed(self, epoch: Epoch) -> bool:
        """Return whether the ledger has the epoch; if so, its files are renamed after this."""
        if self.guarantee != "exactly_once":
            return False
        with self._failures():
            return epoch.number <= self._ledger(epoch).epoch

    def __getstate__(self) -> dict[str, Any]:
        # Only the driver commits.
        return self.__dict__ | {"_ledgers": {}}

    def _ledger(self, epoch: Epoch) -> Ledger:
        key = epoch.lineage, epoch.sink
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(self._store, epoch, self._run)
        return self._ledgers[key]

    def _record(self, epoch: Epoch, files: list[Staged]) -> None:
        ledger = self._ledger(epoch)
        try:
            files = merge_small_files(self._store, staging_folder(epoch, self._run), files)
            self._store.fsync(file["staged"] for file in files)
        except FileNotFoundError as error:
            ledger.check_ownership()
            message = f"a staged file of {self._store.url} is missing: {error.filename or error}"
            hint = f"do not touch {STAGED} while a job runs; run the job again"
            raise SinkFailed(message, hint=hint) from error
        ledger.record(epoch, [(file["staged"], file["final"]) for file in files])

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            with self._store.translated_errors(self.name):
                yield
        except PenstockError as error:
            error.node = error.node or self.name
            raise
