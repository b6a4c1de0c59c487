"""Where tasks leave what is not a result: late rows, rejected rows, counts and errors of one epoch.

Such rows are few, so a task that meets them writes them to a file of (epoch, node, partition), and the epoch writer
publishes the files. That costs nothing while there are none, and asking for them later changes no checkpoint.
A task that runs twice writes the same file twice.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from penstock.contracts import REJECTED, Rejected
from penstock.errors import PenstockError

Kind = Literal["late", "rejected"]
# Not an epoch: where the planning of epochs leaves its errors.
PLANNING = -1


@dataclass(frozen=True)
class Staging:
    """The folder of one query; small enough to travel to every task."""

    folder: str

    def epoch(self, number: int) -> Path:
        """The folder of one epoch."""
        return Path(self.folder) / str(number)

    def clear(self, number: int) -> None:
        """Forget what an earlier, unfinished try of this epoch left."""
        shutil.rmtree(self.epoch(number), ignore_errors=True)

    def put(self, number: int, name: str, data: bytes) -> None:
        """Leave a file, whole or not at all."""
        folder = self.epoch(number)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{uuid.uuid4().hex}"
        temporary.write_bytes(data)
        os.replace(temporary, folder / name)

    def put_rows(self, number: int, kind: Kind, node: str, part: str, rows: pa.Table) -> None:
        """Leave rows of one node and task."""
        if rows.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            self.put(number, f"{kind}={node}={part}.arrow", sink.getvalue().to_pybytes())

    def rows(self, number: int, kind: Kind) -> Iterator[tuple[str, pa.Table]]:
        """Yield what tasks left: (node, rows), in the order of the tasks."""
        for path in sorted(self.epoch(number).glob(f"{kind}=*.arrow")):
            node = path.name.split("=")[1]
            with pa.ipc.open_stream(path.read_bytes()) as reader:
                yield node, reader.read_all()

    def put_counts(self, number: int, part: str, counts: dict[str, dict[str, int]]) -> None:
        """Leave what one task counted, by node."""
        self.put(number, f"counts={part}.json", json.dumps(counts).encode())

    def counts(self, number: int) -> dict[str, dict[str, int]]:
        """Add up what the tasks counted."""
        total: dict[str, dict[str, int]] = {}
        for path in self.epoch(number).glob("counts=*.json"):
            for node, counted in json.loads(path.read_bytes()).items():
                mine = total.setdefault(node, {})
                for name, count in counted.items():
                    mine[name] = mine.get(name, 0) + count
        return total

    def put_error(self, number: int, error: PenstockError) -> None:
        """Leave an error as the user should meet it: Spark would hand on only its text."""
        fields = [type(error).__name__, error.message, error.node, error.hint, error.transient]
        self.put(number, "error.json", json.dumps(fields).encode())

    def error(self, number: int) -> list[Any] | None:
        """Return the error that a task left."""
        path = self.epoch(number) / "error.json"
        return json.loads(path.read_bytes()) if path.exists() else None


def rejected_table(node: str, epoch: int, rows: list[Rejected], source: str | None) -> pa.Table:
    """Return rows that did not parse in the one schema that rejected rows have."""
    return pa.Table.from_pylist(
        [
            {
                "node": node,
                "reason": row.reason,
                "row": None,
                "raw": row.raw,
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
                "row": json.dumps(row, default=str),
                "raw": None,
                "source": None,
                "position": None,
                "epoch": epoch,
            }
            for reason, row in rows
        ],
        schema=REJECTED.arrow,
    )
