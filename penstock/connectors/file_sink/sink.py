"""The sink that writes files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_args
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa

from penstock.connectors.csv_options import CsvOptions
from penstock.connectors.file_sink.addresses import located, place
from penstock.connectors.file_sink.columns import keep_columns
from penstock.connectors.file_sink.compaction import Compaction, Overtaken
from penstock.connectors.file_sink.ledger import Ledger, finish, has_epochs, staging_folder
from penstock.connectors.file_sink.merging import merged
from penstock.connectors.file_sink.places import STAGED
from penstock.connectors.file_sink.stage import Stage, Staged
from penstock.connectors.writers import ENDINGS, refuse_types
from penstock.contracts import Epoch, Guarantee, Sink
from penstock.errors import BadSchema, BadValue, PenstockError, SinkFailed, UnknownColumn, choices
from penstock.masking import masked
from penstock.schema import Schema

# Of a folder `column=value`, most of what file systems allow is the value's.
_LONGEST_FOLDER = 120
_FORGOTTEN_AFTER = 7 * 24 * 3600


class FileSink(Sink):
    """Writes Parquet, csv or json files to a folder or an object store, in subfolders `column=value` if asked.

    Guarantee: exactly once. An epoch's files are staged out of sight; its entry in the ledger decides, and
    then they get their names, again after a crash. Names do not change when an epoch is replayed. Asked for less, it
    writes to the final names right away, without a ledger.
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
        """Take a folder or a URL, below `base` unless it is absolute."""
        _refuse_unknown("format", format, ENDINGS)
        self.options = options or CsvOptions()
        self.options.refuse_other_formats(format, "files")
        self.options.refuse_unwritable()
        self.guarantee = guarantee or "exactly_once"
        _refuse_unknown("guarantee", self.guarantee, get_args(Guarantee))
        self.format = format
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
        self.name = path.rstrip("/").rpartition("/")[2] or "files"
        self._given = path
        self._place = place(located(path, base))
        self._run = ""
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._schema: Schema | None = None

    @property
    def why(self) -> str:
        """How it keeps its guarantee."""
        if self.guarantee == "exactly_once":
            return "files are staged, shown when the ledger beside them has the epoch, and never shown again"
        return super().why

    def goes_to(self) -> str:
        """Name the folder."""
        return f"files '{masked(self._given)}'"

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON."""
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

    def under(self, folder: str) -> None:
        """Write below this folder or URL, unless the path is absolute."""
        self._place = place(located(self._given, folder))

    def check(self) -> None:
        """Raise a SettingsError if the place cannot be written."""
        with self._failures():
            self._place.check()

    def fits(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Refuse folders by a column that the rows do not have, or whose name no folder can have."""
        for name in self.partition_by:
            if name not in schema:
                message = f"partition_by names the unknown column '{name}'"
                hint = choices("columns here", schema.names, name)
                raise UnknownColumn(message, node=f"files '{self.name}'", hint=hint)
            if len(quote(name, safe=" ")) > _LONGEST_FOLDER:
                message = f"column '{name}' of partition_by is too long for a folder's name"
                raise BadSchema(message, hint='rename it before: .rename(other="...")')

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Finish what a crash cut off, and remove what was staged and forgotten."""
        refuse_types(self.format, schema)
        self.fits(schema, key)
        self._run, self._ledgers, self._schema = uuid4().hex, {}, schema
        with self._failures():
            # Whoever began it may be at it still: then it is theirs.
            with contextlib.suppress(Overtaken):
                Compaction(self._place)
            staged = self._place.files(STAGED)
            if staged:
                finish(self._place, staged)
                self._place.remove(name for name, found in staged.items() if found.age > _FORGOTTEN_AFTER)

    def continues(self, lineage: str, sink: str) -> None:
        """Refuse columns that do not fit; take the ledger over, so that no earlier run of the job can commit."""
        if self._schema is not None:
            with self._failures():
                keep_columns(self._place, self.format, sink, self._schema)
        self.committed(Epoch(lineage, sink, 0))

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        """Return what the ledger has."""
        if self.guarantee != "exactly_once":
            return {}
        with self._failures():
            ledger = self._ledger(Epoch(lineage, sink, 0))
        return {ledger.epoch: ledger.bounds} if ledger.epoch >= 0 else {}

    def used_before(self, sink: str) -> bool:
        """Look for a ledger of that name."""
        with self._failures():
            return self.guarantee == "exactly_once" and has_epochs(self._place, sink)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Write the rows of one partition, out of sight if they are to be committed."""
        # A sink that was given another name may share its folder with a second one.
        sink = "" if epoch.sink == self.name else f"-{quote(epoch.sink, safe='')}"
        name = f"part-{quote(epoch.lineage, safe='')}{sink}-{epoch.number:08}-{partition}"
        folder, shown = staging_folder(epoch, self._run), self.guarantee != "exactly_once"
        with self._place.failures(self.name):
            stage = Stage(self._place, folder, self.format, name, shown=shown, options=self.options)
            return stage.written(batches, self.partition_by)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Write the ledger, then show the files; an epoch in the ledger is only finished."""
        if self.guarantee == "exactly_once":
            if not self.committed(epoch):
                with self._failures():
                    self._record(epoch, [file for token in tokens for file in token])
            self.abort(epoch, tokens)

    def abort(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Remove what is still staged."""
        if self.guarantee == "exactly_once":
            with self._failures():
                self._place.remove(file["staged"] for token in tokens for file in token)

    def committed(self, epoch: Epoch) -> bool:
        """Say whether the ledger has the epoch; if so, its files are in place after this."""
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
            self._ledgers[key] = Ledger(self._place, epoch, self._run)
        return self._ledgers[key]

    def _record(self, epoch: Epoch, files: list[Staged]) -> None:
        ledger = self._ledger(epoch)
        try:
            files = merged(self._place, staging_folder(epoch, self._run), files)
            self._place.harden(file["staged"] for file in files)
        except FileNotFoundError as error:
            ledger.refuse_if_taken()
            message = f"a file that was staged in {self._place.url} is gone: {error.filename or error}"
            hint = f"leave {STAGED} alone while a job runs, and run the job again"
            raise SinkFailed(message, hint=hint) from error
        ledger.record(epoch, [(file["staged"], file["final"]) for file in files])

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            with self._place.failures(self.name):
                yield
        except PenstockError as error:
            error.node = error.node or self.name
            raise


def _refuse_unknown(what: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        message = f"files: {what} {value!r} is not known"
        raise BadValue(message, hint=choices(f"{what}s", known, value))
