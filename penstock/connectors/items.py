"""Rows given in the program."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.connectors.formats import parser
from penstock.connectors.notes import even_cuts
from penstock.connectors.rejects import broken
from penstock.connectors.values import column_value
from penstock.contracts import Offsets, Rejected, Source
from penstock.errors import BadSchema, choices
from penstock.folders import Folder
from penstock.folders import folder as to_folder
from penstock.schema import Schema, Shape

Payload = Callable[[bytes], dict[str, Any] | str]


class ItemSource(Source):
    """Rows as dicts, dataclasses or tuples; bytes are payloads that are parsed as JSON.

    Guarantee: exactly once, for the rows are the same after a restart. A missing key is null.
    The test kit offers the rows bit by bit: no more than the number in the file `released`, if it is there.

    >>> ItemSource([{"a": 1}, (2,)], "a bigint").latest({}, None)
    {'0': 2}
    """

    def __init__(self, rows: Iterable[Any], schema: Shape, name: str = "items", payload: Payload | None = None) -> None:
        """Take rows; `payload` reads bytes, each to a row or to the reason why it is none."""
        self.name, self.schema = name, Schema(schema)
        self._bad: dict[int, Rejected] = {}
        self._folder: Folder | None = None
        read = payload or self._json
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            message = f"{type(rows).__name__} {rows!r} is not a list of rows"
            raise BadSchema(message, node="items", hint='pass a list: [{"name": value, ...}, ...]')
        records = [self._record(number, row, read) for number, row in enumerate(rows)]
        self._batch = pa.RecordBatch.from_pylist(records, schema=self.schema.nullable().arrow)
        self._set_nulls_aside()

    def spec(self) -> dict[str, Any]:
        """Return what rebuilds it from JSON."""
        return self._spec

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> ItemSource:
        """Rebuild it from `spec()`."""
        self = cls([], spec["schema"], spec["name"])
        self._batch = pa.ipc.open_stream(base64.b64decode(spec["rows"])).read_next_batch()
        for number, reason, raw in spec["bad"]:
            self._bad[number] = Rejected(reason, base64.b64decode(raw), f"{self.name}:{number}")
        return self

    def open(self, folder: str | Folder) -> None:
        """Look for the number of released rows in this folder."""
        self._folder = to_folder(folder)

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the number of rows that one may have read."""
        begin = int(start.get("0", 0))
        noted = self._folder.read("released") if self._folder else None
        end = min(self._batch.num_rows, int(noted)) if noted else self._batch.num_rows
        if max_rows is not None:
            end = min(end, begin + max(1, max_rows))
        return {"0": max(begin, end)}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows from number `start` up to number `end`, the bad ones in their places."""
        begin, stop = int(start or 0), int(end)
        for number in sorted(n for n in self._bad if begin <= n < stop):
            if number > begin:
                yield self._batch.slice(begin, number - begin)
            yield self._bad[number]
            begin = number + 1
        if stop > begin:
            yield self._batch.slice(begin, stop - begin)

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Cut the range into pieces of about the same size; a few rows stay together."""
        first, last = int(start.get("0", 0)), int(end["0"])
        return [("0", lo, hi) for lo, hi in even_cuts(first, last, parallelism, least=1000)]

    def behind(self, offsets: Offsets) -> int:
        """Return how many rows are there after these offsets."""
        return int(self.latest(offsets, None)["0"]) - int(offsets.get("0", 0))

    def ended(self, offsets: Offsets) -> bool:
        """Say whether all rows were read, released or not."""
        return bool(int(offsets.get("0", 0)) >= self._batch.num_rows)

    @cached_property
    def _spec(self) -> dict[str, Any]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batch.schema) as writer:
            writer.write_batch(self._batch)
        bad = [[n, row.reason, _text(row.raw)] for n, row in sorted(self._bad.items())]
        rows = _text(sink.getvalue().to_pybytes())
        return {"kind": "items", "name": self.name, "schema": self.schema.ddl, "rows": rows, "bad": bad}

    def _record(self, number: int, row: Any, read: Payload) -> dict[str, Any]:
        if isinstance(row, bytes):
            found = read(row)
            if isinstance(found, str):
                self._bad[number] = Rejected(found, row, f"{self.name}:{number}")
                return {}
            return found
        record = _as_dict(row, self.schema, number)
        unknown = [name for name in record if name not in self.schema]
        if unknown:
            message = f"{self.name}: row {number} has an unknown column '{unknown[0]}'"
            raise BadSchema(message, hint=choices("columns here", self.schema.names, unknown[0]))
        where = f"{self.name}: row {number}"
        return {f.name: column_value(record.get(f.name), f, where) for f in self.schema}

    def _json(self, raw: bytes) -> dict[str, Any] | str:
        # A payload is one document, wherever its lines end.
        batch, bad = parser("json", self.schema).rows([raw.replace(b"\n", b"\t")])
        return bad[0] if bad else dict(batch.to_pylist()[0])

    def _set_nulls_aside(self) -> None:
        for number, reason in broken(self._batch, self.schema):
            raw = json.dumps(self._batch.slice(number, 1).to_pylist()[0], default=str).encode()
            self._bad.setdefault(number, Rejected(reason, raw, f"{self.name}:{number}"))


def _as_dict(row: Any, schema: Schema, number: int) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    if isinstance(row, Sequence) and not isinstance(row, str) and len(row) == len(schema):
        return dict(zip(schema.names, row, strict=True))
    message = f"row {number} is {row!r}, which does not fit {schema.ddl!r}"
    raise BadSchema(message, node="items", hint=f"pass a dict, a dataclass or a tuple of {len(schema)} values")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
