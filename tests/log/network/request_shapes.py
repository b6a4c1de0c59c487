"""Requests of any schema that are many small elements: the same one repeated, or such that differ in one field."""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from kio.index import load_request_schema

from penstock.kafka.wire import varint
from penstock.log.protocol.apis import Api

Path_ = tuple[str, ...]
EMPTY, NULL, ONE = "empty", "null", "one"


class Shape(NamedTuple):
    """A request that is small elements for the most part: where they are, and what is in its texts.

    `varied` is the one field in which the elements differ; `rest` is what other arrays and texts are, where they can.
    """

    flooded: Path_
    tags: bool = False
    name: str = "good"
    rest: str = EMPTY
    varied: Path_ | None = None
    kind: int = 2  # of resources, for example: a topic

    def __str__(self) -> str:
        return f"{'/'.join(self.flooded) or 'request'} {self[1:]}"


class Writer:
    """Encodes the smallest request of a schema but for one place, which is filled up to a size."""

    def __init__(self, shape: Shape, flexible: bool, size: int, topic_id: bytes = bytes(16)) -> None:
        self._shape = shape
        self._flexible = flexible
        self._size = size
        self._topic_id = topic_id
        self._number: int | None = None  # of the element that is being written

    def entity(self, schema: Any, path: Path_ = ()) -> bytes:
        body = b"".join(self._field(each, hint, (*path, each.name)) for each, hint in _plain_fields(schema))
        return body + self._tags(path) if self._flexible else body

    def _tags(self, path: Path_) -> bytes:
        if not self._shape.tags or path != self._shape.flooded:
            return b"\0"
        count = self._size // 2
        return _length(count) + b"\x7f\0" * count

    def _field(self, field: dataclasses.Field[Any], hint: Any, path: Path_) -> bytes:
        kind, kafka_type, shape = without_none(hint), field.metadata.get("kafka_type", ""), self._shape
        if shape.rest == NULL and kind is not hint and not _leads_to(path, shape.flooded, shape.varied or ()):
            return self._null(kind, kafka_type)
        if typing.get_origin(kind) is not tuple:
            return self._one(kind, kafka_type, path)
        count, items = self._items(typing.get_args(kind)[0], kafka_type, path)
        return (_length(count + 1) if self._flexible else struct.pack(">i", count)) + items

    def _items(self, item: Any, kafka_type: str, path: Path_) -> tuple[int, bytes]:
        """Return how many elements an array has, and their bytes."""
        shape = self._shape
        if path == shape.flooded and not shape.tags:
            first = self._one(item, kafka_type, path)
            count = self._size // len(first)
            if shape.varied is None:
                return count, first * count
            return count, b"".join(self._numbered(number, item, kafka_type, path) for number in range(count))
        if self._number is not None and _leads_to(path, shape.varied or ()):
            number, self._number = self._number, None  # one that all elements have, and one of its own
            return 2, self._one(item, kafka_type, path) + self._numbered(number, item, kafka_type, path)
        is_one = _leads_to(path, shape.flooded) or shape.rest == ONE
        return (1, self._one(item, kafka_type, path)) if is_one else (0, b"")

    def _numbered(self, number: int, item: Any, kafka_type: str, path: Path_) -> bytes:
        self._number = number
        encoded = self._one(item, kafka_type, path)
        self._number = None
        return encoded

    def _null(self, kind: Any, kafka_type: str) -> bytes:
        if dataclasses.is_dataclass(kind):
            return b"\xff"
        if typing.get_origin(kind) is tuple or kafka_type in ("bytes", "records"):
            return b"\0" if self._flexible else b"\xff\xff\xff\xff"
        if kafka_type == "string":
            return b"\0" if self._flexible else b"\xff\xff"
        return _FIXED[kafka_type]

    def _one(self, kind: Any, kafka_type: str, path: Path_) -> bytes:
        if dataclasses.is_dataclass(kind):
            return self.entity(kind, path)
        number = self._number if path == self._shape.varied else None
        if kafka_type == "string":
            text = f"{self._shape.name}{'' if number is None else f'{number:05}'}".encode()
            return (_length(len(text) + 1) if self._flexible else struct.pack(">h", len(text))) + text
        if kafka_type in ("bytes", "records"):
            return b"\1" if self._flexible else bytes(4)
        fixed = self._fixed(kafka_type, path[-1])
        if number is None:
            return fixed
        return (number % (1 << 8 * len(fixed) - 1)).to_bytes(len(fixed), "big")

    def _fixed(self, kafka_type: str, name: str) -> bytes:
        if self._shape.varied is None:
            return _FIXED[kafka_type]
        if kafka_type == "int8":
            return bytes([self._shape.kind])
        return (
            self._topic_id if kafka_type == "uuid" else _VALID.get(name) or _VARIED.get(kafka_type, _FIXED[kafka_type])
        )


_FIXED = {"bool": b"\0", "int8": b"\2", "int16": b"\xff\xff", "int32": bytes(4), "int64": bytes(8), "uuid": bytes(16)}
_FIXED |= {"float64": bytes(8), "timedelta_i32": bytes(4), "timedelta_i64": bytes(8), "uint16": bytes(2)}
_VARIED = {"bool": b"\1"}  # so that nothing is created, and everything is described
# What gets a request past the first check.
_VALID = {"num_partitions": struct.pack(">i", 1), "allow_auto_topic_creation": b"\0"}
_VALID |= dict.fromkeys(("current_leader_epoch", "member_epoch", "response_partition_limit"), struct.pack(">i", -1))
_VALID |= dict.fromkeys(("max_bytes", "partition_max_bytes"), struct.pack(">i", 1 << 20))
_KINDS = {"fetch": (1,), "describe_configs": (2, 32)}  # only committed records; topics and groups


def _leads_to(path: Path_, *places: Path_) -> bool:
    return any(path == place[: len(path)] for place in places)


def _length(number: int) -> bytes:
    return bytes(varint(number))


def without_none(hint: Any) -> Any:
    if not isinstance(hint, types.UnionType):
        return hint
    return next(each for each in typing.get_args(hint) if each is not type(None))


@cache
def _plain_fields(schema: Any) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(schema)
    return [(each, hints[each.name]) for each in dataclasses.fields(schema) if "tag" not in each.metadata]


def fields_in(schema: Any, path: Path_ = ()) -> Iterator[tuple[Path_, bool, bool]]:
    """Yield the fields of a schema, at any depth, whether each is an array, and whether it has fields itself."""
    for field, hint in _plain_fields(schema):
        kind = without_none(hint)
        is_array = typing.get_origin(kind) is tuple
        item = typing.get_args(kind)[0] if is_array else kind
        yield (*path, field.name), is_array, dataclasses.is_dataclass(item)
        if dataclasses.is_dataclass(item):
            yield from fields_in(item, (*path, field.name))


def shapes(api: Api, version: int) -> list[Shape]:
    """Return requests that would make a careless broker allocate much more than their size."""
    schema = load_request_schema(api.key, version)
    arrays = [(path, is_entity) for path, is_array, is_entity in fields_in(schema) if is_array]
    found = [Shape(path, name=name) for path, _ in arrays for name in ("", "good")]
    found += [Shape(path, rest=NULL) for path, _ in arrays]
    if api.is_flexible(version):
        found += [Shape((), tags=True), *(Shape(path, tags=True) for path, is_entity in arrays if is_entity)]
    return found + varied_shapes(api, version)


def varied_shapes(api: Api, version: int) -> list[Shape]:
    """Return requests whose elements differ in one field, which may be one that does not change the answer."""
    found = list(fields_in(load_request_schema(api.key, version)))
    varied = [path for path, _, has_fields in found if not has_fields]
    return [
        Shape(array, varied=path, rest=rest, kind=kind)
        for array, is_array, _ in found
        for path in varied
        for rest in (EMPTY, NULL, ONE)
        for kind in _KINDS.get(api.name, (2,))
        if is_array and path[: len(array)] == array
    ]
