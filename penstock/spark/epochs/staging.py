"""Where tasks leave what is not a result: late rows, rejected rows, counts and errors of one epoch.

Such rows are few, so a task that meets them writes them to a file of (epoch, node, partition), and the epoch writer
publishes the files. That costs nothing while there are none, and asking for them later changes no checkpoint.
A task that runs twice writes the same file twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.contracts import REJECTED, Rejected
from penstock.errors import PenstockError
from penstock.folders import Folder
from penstock.folders.file_names import file_name
from penstock.rejected.rows import row_json
from penstock.spark.epochs.origins import Times, named

Kind = Literal["late", "rejected"]
# Not an epoch: where the planning of epochs leaves its errors.
PLANNING = -1
# Where a file of rows holds the name of their node: that of the file may be cut off.
_NODE = b"node"


@dataclass(frozen=True)
class Staging:
    """The folder of one query; small enough to travel to every task.

    `near`, if given, is a quicker one on the only machine that there is, for what no crash need leave.
    """

    folder: Folder
    near: Folder | None = None

    def clear(self, number: int) -> None:
        """Forget what an earlier, unfinished try of this epoch left."""
        self._passing.remove(str(number))

    def begin(self, number: int) -> None:
        """Note durably that an epoch has begun: it must not be written by a later run."""
        self.folder.write("begun", str(number).encode())

    def begun(self) -> int:
        """Return the epoch that an earlier run began last, or -1."""
        return int(self.folder.read("begun") or -1)

    def put(self, number: int, name: str, data: bytes) -> None:
        """Leave a file, whole or not at all; a crash makes the epoch run again, so it need not survive one."""
        self._passing.write(f"{number}/{name}", data, sync=False)

    def put_rows(self, number: int, kind: Kind, node: str, part: str, rows: pa.Table) -> None:
        """Leave rows of one node and task."""
        if rows.num_rows:
            sink = pa.BufferOutputStream()
            named = rows.replace_schema_metadata({_NODE: node})
            with pa.ipc.new_stream(sink, named.schema) as writer:
                writer.write_table(named)
            self.put(number, f"{kind}={file_name(node)}={_safe(part)}.arrow", sink.getvalue().to_pybytes())

    def rows(self, number: int, kind: Kind) -> Iterator[tuple[str, pa.Table]]:
        """Yield what tasks left: (node, rows), in the order of the tasks."""
        for _, data in self.left(number, f"{kind}="):
            with pa.ipc.open_stream(data) as reader:
                rows = reader.read_all()
                yield rows.schema.metadata[_NODE].decode(), rows.replace_schema_metadata()

    def put_counts(self, number: int, part: str, counts: dict[str, dict[str, int]]) -> None:
        """Leave what one task counted, by node."""
        self.put(number, f"counts={_safe(part)}.json", json.dumps(counts).encode())

    def put_times(
        self,
        number: int,
        part: str,
        times: Mapping[str, Mapping[int, int]],
        origins: Mapping[int, str] | None = None,
    ) -> None:
        """Leave the newest times that one task met, by event time and origin, and the names of origins."""
        self.put(number, f"times={part}.json", json.dumps([times, origins or {}]).encode())

    def times(self, number: int) -> Times:
        """Return the newest time of each partition, by event time."""
        return named(tuple(json.loads(data)) for _, data in self.left(number, "times="))

    def counts(self, number: int) -> dict[str, dict[str, int]]:
        """Add up what the tasks counted."""
        total: dict[str, dict[str, int]] = {}
        for _, data in self.left(number, "counts="):
            for node, counted in json.loads(data).items():
                mine = total.setdefault(node, {})
                for name, count in counted.items():
                    mine[name] = mine.get(name, 0) + count
        return total

    def claim(self, number: int, what: str) -> bool:
        """Say whether no other task of the epoch has claimed the same."""
        try:
            # A store takes a second writing of the same for a repeated one: so each claim is another.
            self._passing.write(f"{number}/claim={what}", uuid.uuid4().bytes, once=True, sync=False)
        except FileExistsError:
            return False
        return True

    def put_error(self, number: int, error: PenstockError) -> None:
        """Leave an error as the user should meet it: Spark would hand on only its text."""
        fields = [type(error).__name__, error.message, error.node, error.hint, error.transient]
        self.put(number, "error.json", json.dumps(fields).encode())

    def error(self, number: int) -> list[Any] | None:
        """Return the error that a task left."""
        left = self._passing.read(f"{number}/error.json")
        return json.loads(left) if left else None

    def planned_error(self, after: int) -> list[Any] | None:
        """Return the error of an epoch that Spark was still planning: tables are read before its writer is called."""
        return next((left for number in self._numbers() if number > after and (left := self.error(number))), None)

    def forget_errors(self) -> None:
        """Drop the errors that an earlier run left."""
        for number in self._numbers():
            self._passing.remove(f"{number}/error.json")

    def _numbers(self) -> list[int]:
        return sorted((int(name) for name in self._passing.names() if name.isdigit()), reverse=True)

    @property
    def _passing(self) -> Folder:
        return self.near or self.folder

    def left(self, number: int, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files that tasks left, in the order of their names."""
        there = self._passing / str(number)
        for name in there.names():
            if name.startswith(prefix) and (data := there.read(name)) is not None:
                yield name, data


def rejected_table(node: str, epoch: int, rows: list[Rejected], source: str | None) -> pa.Table:
    """Return rows that did not parse in the one schema that rejected rows have."""
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
    """Return parsed rows that a node refused, with the reason, in the schema of rejected rows."""
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


def _safe(part: str) -> str:
    """Return what names a task, with the name of a node in it, as a part of a file's name."""
    *names, number = part.split("=")
    return "=".join([*(file_name(name, 80) for name in names), number])
