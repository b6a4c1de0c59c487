"""Rows from the program itself, for tests and examples."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.connectors.formats.parsers import null_violations, parser
from penstock.connectors.ranges import split_range
from penstock.contracts import Offsets, Rejected, Source
from penstock.durations import instant
from penstock.errors import BadSchema, BadValue, choices
from penstock.schema import Field, Schema, Shape, arrow_type
from penstock.storage.folders import Folder
from penstock.storage.folders import folder as to_folder
from penstock.values import column_of

Payload = Callable[[bytes], dict[str, Any] | str]


class ItemSource(Source):
    """Rows as dicts, dataclasses or tuples; bytes are payloads that are parsed as JSON.

    Guarantee: exactly once, because the rows are the same after a restart. A missing key is null.
    The test kit offers the rows bit by bit: no more than the number in the file `released`, if it exists.

    >>> ItemSource([{"a": 1}, (2,)], "a bigint").latest({}, None)
    {'0': 2}
    """

    repeats_splits = True

    def __init__(self, rows: Iterable[Any], schema: Shape, name: str = "items", payload: Payload | None = None) -> None:
        """Take rows; `payload` parses bytes to a row, or to the reason why they are rejected."""
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
        """Return the JSON description."""
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
        """Use this folder for the number of released rows."""
        self._folder = to_folder(folder)

    def initial(self) -> Offsets:
        """Return the offsets before the first row."""
        return {"0": 0}

    def latest(self, start: Offsets, max_rows: int | None) -> Offsets:
        """Return the row number up to which the next epoch reads."""
        begin = int(start.get("0", 0))
        noted = self._folder.read("released") if self._folder else None
        end = min(self._batch.num_rows, int(noted)) if noted else self._batch.num_rows
        if max_rows is not None:
            end = min(end, begin + max(1, max_rows))
        return {"0": max(begin, end)}

    def read(self, partition: str, start: int | str | None, end: int | str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows from number `start` up to number `end`, the bad ones in their positions."""
        begin, stop = int(start or 0), int(end)
        for number in sorted(n for n in self._bad if begin <= n < stop):
            if number > begin:
                yield self._batch.slice(begin, number - begin)
            yield self._bad[number]
            begin = number + 1
        if stop > begin:
            yield self._batch.slice(begin, stop - begin)

    def splits(self, start: Offsets, end: Offsets, parallelism: int) -> Sequence[Any]:
        """Divide the range into splits of about the same size; a few rows stay in one."""
        first, last = int(start.get("0", 0)), int(end["0"])
        return [("0", lo, hi) for lo, hi in split_range(first, last, parallelism, least=1000)]

    def lag(self, offsets: Offsets) -> int:
        """Return how many rows there are after these offsets."""
        return int(self.latest(offsets, None)["0"]) - int(offsets.get("0", 0))

    def ended(self, offsets: Offsets) -> bool:
        """Return whether all rows were read, released or not."""
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
        # A payload is one document, also with line breaks.
        batch, bad = parser("json", self.schema).rows([raw.replace(b"\n", b"\t")])
        return bad[0] if bad else dict(batch.to_pylist()[0])

    def _set_nulls_aside(self) -> None:
        for number, reason in null_violations(self._batch, self.schema):
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


def column_value(value: Any, field: Field, where: str) -> Any:
    """Return the value for Arrow; raise BadSchema if it has another type.

    >>> column_value(1, Field("price", "double"), "row 0")
    1.0
    """
    kind = arrow_type(field.type)
    try:
        array, wrong = column_of(kind).converted([_timed(value, kind)])
    except BadValue as error:
        message = f"{where}, column '{field.name}': {value!r} is not a {field.type}"
        raise BadSchema(message, hint=str(error)) from error
    for misfit in wrong.values():
        message = f"{where}, column '{field.name}': {value!r} is not a {field.type}"
        raise BadSchema(message, hint=misfit.within(field.name).text)
    return array[0].as_py()


def _timed(value: Any, kind: pa.DataType) -> Any:
    """Return a value with times parsed from text."""
    if pa.types.is_timestamp(kind):
        return instant(value) if kind.tz and isinstance(value, str) else value
    if not pa.types.is_nested(kind):
        return value
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_timed(part, kind.value_type) for part in value]
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [(_timed(key, kind.key_type), _timed(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_struct(kind) and dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        kinds = {part.name: part.type for part in kind}
        return {name: _timed(part, kinds[name]) if name in kinds else part for name, part in value.items()}
    return value
