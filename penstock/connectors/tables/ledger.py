"""The ledger in a database: the newest epoch of each partition of each sink, in the same schema as the table."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.connectors.tables.database import Session, quoted
from penstock.contracts import Epoch, refuse_other_input
from penstock.errors import SinkFailed

NAME = "penstock_ledger"
COLUMNS = (
    "lineage text NOT NULL, sink text NOT NULL, partition integer NOT NULL, partitions integer NOT NULL, "
    "epoch bigint NOT NULL, bounds text NOT NULL DEFAULT '', PRIMARY KEY (lineage, sink, partition)"
)
# What a ledger lacks that an earlier version of Penstock made.
ADDED = ("bounds", "text NOT NULL DEFAULT ''")
_ROW = "WHERE lineage = ? AND sink = ? AND partition = ?"


@dataclass(frozen=True)
class Ledger:
    """The ledger for one table: in the same schema, so that one transaction writes both."""

    table: str

    @property
    def name(self) -> str:
        """The ledger's own name."""
        schema, dot, _ = self.table.rpartition(".")
        return f"{schema}{dot}{NAME}"

    def partitions(self, session: Session, lineage: str, sink: str) -> int | None:
        """Return into how many partitions a sink's rows were cut when it began."""
        asked = f"SELECT max(partitions) FROM {quoted(self.name)} WHERE lineage = ? AND sink = ?"
        found: int | None = session.execute(asked, lineage, sink)[0][0]
        return found

    def newest(self, session: Session, lineage: str, sink: str) -> dict[int, str]:
        """Return the newest epochs of a sink's partitions, with their bounds."""
        asked = f"SELECT epoch, max(bounds) FROM {quoted(self.name)} WHERE lineage = ? AND sink = ? AND epoch >= 0 "
        return dict(session.execute(asked + "GROUP BY epoch", lineage, sink))

    def has_epochs(self, session: Session, sink: str) -> bool:
        """Return whether the table is there, and a sink of that name has written it, in any lineage and query."""
        if not (session.columns(self.table) and session.columns(self.name)):
            return False
        asked = f"SELECT 1 FROM {quoted(self.name)} WHERE epoch >= 0 AND (sink = ? OR substr(sink, 1, ?) = ?) LIMIT 1"
        return bool(session.execute(asked, sink, len(sink) + 1, f"{sink}@"))

    def has(self, session: Session, epoch: Epoch, partition: int, partitions: int) -> bool:
        """Lock a partition until the transaction ends, and return whether it has the epoch already."""
        # The update changes nothing: it locks the row, to wait for a zombie task that still writes this partition.
        lock = (
            f"INSERT INTO {quoted(self.name)} (lineage, sink, partition, partitions, epoch) VALUES (?, ?, ?, ?, -1) "
            "ON CONFLICT (lineage, sink, partition) DO UPDATE SET partition = excluded.partition "
            "RETURNING epoch, partitions, bounds"
        )
        ((newest, known, bounds),) = session.execute(lock, epoch.lineage, epoch.sink, partition, partitions)
        if known != partitions:
            message = f"{self.table}: {NAME} has {known} partitions of it, but rows come in {partitions}"
            raise SinkFailed(message, hint="run the job again: it then uses the number of partitions in the ledger")
        if int(newest) == epoch.number:
            refuse_other_input(f"table {self.table}", epoch.number, bounds, epoch.bounds)
        return int(newest) >= epoch.number

    def record(self, session: Session, epoch: Epoch, partition: int) -> None:
        """Write down that a partition has the epoch, in the transaction of its rows."""
        update = f"UPDATE {quoted(self.name)} SET epoch = ?, bounds = ? {_ROW}"
        session.execute(update, epoch.number, epoch.bounds, epoch.lineage, epoch.sink, partition)
