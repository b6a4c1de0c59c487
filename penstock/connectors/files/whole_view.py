"""The file with a whole view, which each epoch that changes the view replaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.ledger import staging_folder
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.staging import Stage, Staged
from penstock.contracts import ROW_REMOVED, Epoch
from penstock.schema import Schema

NAME = "view"
FILE = f"{NAME}.parquet"
_ROWS = 65_536
_REMOVED = "__penstock_removed"


class WholeViewSink(FileSink):
    """Writes a view as one Parquet file, `view.parquet`.

    Guarantee: exactly once, and a reader sees the view as one epoch left it. The task applies the changes of an epoch
    to the last file and stages a new one; the epoch's ledger entry commits it, and the file is renamed over the old
    one, also after a crash. So every epoch that changes the view costs what the whole view costs.
    """

    def __init__(self, path: str, unique: Sequence[str] | None, removed: str) -> None:
        """Take a folder, the columns that no two rows of the view have in common, and the condition for deletes."""
        super().__init__(path)
        self.partitions = 1
        self.row_removed = removed
        self.view_key = tuple(unique or ())

    @property
    def guarantee_reason(self) -> str:
        """How the sink achieves its guarantee."""
        return "the new file is staged, and renamed over the old one once the ledger next to it has the epoch"

    def spec(self) -> dict[str, Any]:
        """Return the JSON description."""
        return {
            "kind": "whole_view",
            "path": super().spec()["path"],
            "unique": list(self.view_key),
            "removed": self.row_removed,
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> WholeViewSink:
        """Rebuild it from `spec()`."""
        return cls(spec["path"], spec["unique"], spec["removed"])

    def open(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Receive the columns of the view."""
        super().open(Schema(tuple(field for field in schema if field.name != ROW_REMOVED)), key)

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Apply the changes of an epoch to the file of the epoch before."""
        changes = pa.Table.from_batches(list(batches))
        rows = changes.drop_columns([ROW_REMOVED])
        with self._store.translated_errors(self.name):
            old = rows.slice(0, 0) if epoch.number == 0 else self._current(rows.schema)
            return self._staged(epoch, applied(old, rows, changes.column(ROW_REMOVED), self.view_key))

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Replace the file; the first epoch does so even if the view is empty, for the file may be of another job."""
        if epoch.number == 0 and not tokens and not self.committed(epoch) and self._schema is not None:
            with self._failures():
                tokens = [self._staged(epoch, self._schema.nullable().arrow.empty_table())]
        super().commit(epoch, tokens)

    def _current(self, like: pa.Schema) -> pa.Table:
        if FILE not in self._store.files(""):
            return like.empty_table()
        with self._store.local_copies([FILE]) as (path,):
            return pq.read_table(path, partitioning=None).select(like.names).cast(like)

    def _staged(self, epoch: Epoch, rows: pa.Table) -> list[Staged]:
        stage = Stage(self._store, staging_folder(epoch, self._run), self.format, NAME, shown=False)
        return stage.written_whole(rows.combine_chunks().to_batches(_ROWS), rows.schema)


def applied(old: pa.Table, changes: pa.Table, removed: pa.ChunkedArray, key: Sequence[str] = ()) -> pa.Table:
    """Return rows with changes applied: a row replaces that of its key, or is removed with it.

    Without a key, a removed row is taken out as often as it is there among the changes.

    >>> applied(pa.table({"a": [1, 1, 2]}), pa.table({"a": [1, 3]}), pa.chunked_array([[True, False]])).to_pydict()
    {'a': [1, 2, 3]}
    """
    import duckdb  # tasks that write no whole view do not need it

    names = ", ".join(map(_quoted, changes.column_names))
    if key:
        same = " AND ".join(f"old_.{name} IS NOT DISTINCT FROM new_.{name}" for name in map(_quoted, key))
        stays = f"SELECT {names} FROM old_ WHERE NOT EXISTS (SELECT 1 FROM new_ WHERE {same})"
        query = f"{stays} UNION ALL SELECT {names} FROM new_ WHERE NOT {_REMOVED} ORDER BY ALL"
    else:
        signed = f"SELECT {names}, if({_REMOVED}, -1, 1) AS w FROM new_ UNION ALL SELECT {names}, 1 FROM old_"
        summed = f"SELECT {names}, sum(w)::BIGINT AS n FROM ({signed}) GROUP BY ALL HAVING n > 0"
        query = f"SELECT {names} FROM ({summed}), range(n) ORDER BY ALL"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        connection.register("old_", old)
        connection.register("new_", changes.append_column(_REMOVED, removed))
        return connection.sql(query).to_arrow_table().cast(old.schema)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
