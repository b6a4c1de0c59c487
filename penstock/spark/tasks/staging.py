"""The staging area of tasks, for what is not a result: late rows, rejected rows, counts and errors of one epoch.

Such rows are few, so a task that meets them writes them to a file of (epoch, node, partition), and the epoch writer
publishes the files. That costs nothing while there are none, and asking for them later changes no checkpoint.
A task that runs twice writes the same file twice.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.contracts import REJECTED, Rejected
from penstock.errors import PenstockError
from penstock.rejected.rows import row_json
from penstock.spark.tasks.source_partitions import Times, merge_times
from penstock.storage.file_names import file_name
from penstock.storage.folders import Folder
from penstock.values.arrow_stream import from_stream, to_stream

Kind = Literal["late", "rejected"]
# Not an epoch: for errors of the planning.
PLANNING = -1
# The file with the last epoch that was started.
STARTED = "begun"
# Among counts, before the name of a source: when its rows arrived, in milliseconds since 1970, and how many.
ARRIVED = "arrived "
# Where a file of rows holds the name of their node: that of the file may be cut off.
_NODE = b"node"


@dataclass(frozen=True)
class Staging:
    """The folder of one query; small enough to travel to every task.

    `near`, if given, is a faster local folder, for what need not survive a crash.
    """

    folder: Folder
    near: Folder | None = None

    def clear(self, number: int) -> None:
        """Delete what an earlier, unfinished attempt of this epoch staged."""
        self._transient.remove(str(number))

    def mark_started(self, number: int) -> None:
        """Record durably that an epoch has started: from now on sinks may have it."""
        self.folder.write(STARTED, str(number).encode())

    def last_started(self) -> int:
        """Return the last epoch that an earlier run started, or -1."""
        return int(self.folder.read(STARTED) or -1)

    def mark_by_input(self, number: int) -> None:
        """Record durably from which epoch on ids of epochs may contain their bounds."""
        self.folder.write("by-input", str(number).encode())

    def first_by_input(self) -> int | None:
        """Return from which epoch on ids of epochs may contain their bounds, if that was recorded."""
        found = self.folder.read("by-input")
        return int(found) if found else None

    def put(self, number: int, name: str, data: bytes) -> None:
        """Write a file atomically; a crash makes the epoch run again, so it need not survive one."""
        self._transient.write(f"{number}/{name}", data, sync=False)

    def put_rows(self, number: int, kind: Kind, node: str, part: str, rows: pa.Table) -> None:
        """Stage rows of one node and task."""
        if rows.num_rows:
            named = rows.replace_schema_metadata({_NODE: node})
            self.put(number, f"{kind}={file_name(node)}={_safe(part)}.arrow", to_stream(named))

    def rows(self, number: int, kind: Kind) -> Iterator[tuple[str, pa.Table]]:
        """Yield what tasks staged: (node, rows), in the order of the tasks."""
        for _, data in self.files(number, f"{kind}="):
            rows = from_stream(data)
            yield rows.schema.metadata[_NODE].decode(), rows.replace_schema_metadata()

    def put_counts(self, number: int, part: str, counts: dict[str, dict[str, int]]) -> None:
        """Stage what one task counted, by node."""
        self.put(number, f"counts={_safe(part)}.json", json.dumps(counts).encode())

    def put_times(
        self,
        number: int,
        part: str,
        times: Mapping[str, Mapping[int, int]],
        names: Mapping[int, str] | None = None,
    ) -> None:
        """Stage the newest times of one task by event time and partition id, and the names of the ids."""
        self.put(number, f"times={part}.json", json.dumps([times, names or {}]).encode())

    def times(self, number: int) -> Times:
        """Return the newest time of each partition, by event time."""
        return merge_times(tuple(json.loads(data)) for _, data in self.files(number, "times="))

    def counts(self, number: int) -> dict[str, dict[str, int]]:
        """Add up what the tasks counted."""
        total: dict[str, dict[str, int]] = {}
        for _, data in self.files(number, "counts="):
            for node, counted in json.loads(data).items():
                mine = total.setdefault(node, {})
                for name, count in counted.items():
                    mine[name] = mine.get(name, 0) + count
        return total

    def claim(self, number: int, what: str) -> bool:
        """Return whether no other task of the epoch has claimed the same."""
        try:
            # An object store takes an equal second write for a retry: so each claim has other bytes.
            self._transient.write(f"{number}/claim={what}", uuid.uuid4().bytes, once=True, sync=False)
        except FileExistsError:
            return False
        return True

    def put_error(self, number: int, error: PenstockError) -> None:
        """Stage an error as the user should see it: Spark would pass on only its text."""
        fields = [type(error).__name__, error.message, error.node, error.hint, error.transient]
        self.put(number, "error.json", json.dumps(fields).encode())

    def error(self, number: int) -> list[Any] | None:
        """Return the error that a task staged."""
        found = self._transient.read(f"{number}/error.json")
        return json.loads(found) if found else None

    def planned_error(self, after: int) -> list[Any] | None:
        """Return the error of an epoch that Spark was still planning: tables are read before its writer is called."""
        return next((found for number in self._numbers() if number > after and (found := self.error(number))), None)

    def forget_errors(self) -> None:
        """Delete the errors of an earlier run."""
        for number in self._numbers():
            self._transient.remove(f"{number}/error.json")

    def _numbers(self) -> list[int]:
        return sorted((int(name) for name in self._transient.names() if name.isdigit()), reverse=True)

    @property
    def _transient(self) -> Folder:
        return self.near or self.folder

    def files(self, number: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files that tasks staged, in the order of their names, and those of one node by their tasks."""
        there = self._transient / str(number)
        for name in sorted(there.names(), key=_by_number):
            if name.startswith(prefix) and (data := there.read(name)) is not None:
                yield name, data


def rejected_table(node: str, epoch: int, rows: list[Rejected], source: str | None) -> pa.Table:
    """Return rows that did not parse, in the schema of rejected rows."""
    return pa.Table.from_pylist(
        [
            {
                "node": node,
                "reason": row.reason,
                "row": row.row,
                "raw": row.raw if row.row is None else None,
                "source": source,
                "position": row.position,
                "epoch": epoch,
            }
            for row in rows
        ],
        schema=REJECTED.arrow,
    )


def rejected_rows(node: str, epoch: int, rows: list[tuple[str, dict[str, Any]]]) -> pa.Table:
    """Return parsed rows that a node rejected, with the reason, in the schema of rejected rows."""
    return pa.Table.from_pylist(
        [
            {
                "node": node,
                "reason": reason,
                "row": row_json(row),
                "raw": None,
                "source": None,
                "position": None,
                "epoch": epoch,
            }
            for reason, row in rows
        ],
        schema=REJECTED.arrow,
    )


def _by_number(name: str) -> tuple[list[str | int], str]:
    """Return what orders names by the numbers in them: the files of task 10 come after those of task 2.

    >>> sorted(["late=n=10.arrow", "late=n=2.arrow"], key=_by_number)
    ['late=n=2.arrow', 'late=n=10.arrow']
    """
    return [int(part) if part.isascii() and part.isdecimal() else part for part in re.split(r"([0-9]+)", name)], name


def _safe(part: str) -> str:
    """Return what names a task, with the name of a node in it, as a part of a file's name."""
    *names, number = part.split("=")
    return "=".join([*(file_name(name, 80) for name in names), number])
