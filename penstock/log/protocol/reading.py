"""Requests read by Kafka's schemas from bytes that may be anything.

kio has a reader of its own, which believes every count: one request with a huge one and it ends the process.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.cursor import Cursor

Read = Callable[[Cursor], Any]


def read_entity(schema: Any, data: memoryview, at: int = 0) -> Any:
    """Return a message of a schema.

    Bytes behind it are let pass, as Kafka does: librdkafka leaves one to three behind some of its requests.
    """
    return _entity(schema)(Cursor(data, schema.__flexible__, at))


@cache
def _entity(schema: Any) -> Read:
    hints = typing.get_type_hints(schema)
    fields = [
        (each, _field(hints[each.name], each.metadata.get("kafka_type", ""))) for each in dataclasses.fields(schema)
    ]
    plain = [(each.name, one) for each, one in fields if "tag" not in each.metadata]
    tagged = {each.metadata["tag"]: (each.name, one) for each, one in fields if "tag" in each.metadata}

    def read(cursor: Cursor) -> Any:
        values = {name: one(cursor) for name, one in plain}
        for tag, data in cursor.tags():
            if tag in tagged:
                name, one = tagged[tag]
                values[name] = one(cursor.inside(data))
        return schema(**values)

    return read


def _field(hint: Any, kafka_type: str) -> Read:
    nullable = isinstance(hint, types.UnionType)
    kind = next(each for each in typing.get_args(hint) if each is not type(None)) if nullable else hint
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        read = _array(_one(item, kafka_type), _size(item, kafka_type))
    else:
        read = _one(kind, kafka_type)
        if nullable and not kafka_type:
            return _nullable_entity(read)
    return read if nullable else _never_null(read)


def _one(kind: Any, kafka_type: str) -> Read:
    return _READS[kafka_type] if kafka_type else _entity(kind)


def _size(kind: Any, kafka_type: str) -> int:
    """Estimate how many bytes of memory an array element takes, besides the text and bytes in it."""
    if kafka_type:
        return _SLOT + _SIZES.get(kafka_type, 0)
    names = [each.metadata.get("kafka_type", "") for each in dataclasses.fields(kind)]
    return _SLOT + _ENTITY + sum(_SLOT + _SIZES.get(name, 0) for name in names)


def _array(item: Read, size: int) -> Read:
    def read(cursor: Cursor) -> Any:
        count = cursor.length(size)
        return None if count is None else tuple([item(cursor) for _ in range(count)])

    return read


def _nullable_entity(inner: Read) -> Read:
    """Read an entity behind the byte that says whether there is one."""
    return lambda cursor: None if cursor.int8() < 0 else inner(cursor)


def _never_null(inner: Read) -> Read:
    def read(cursor: Cursor) -> Any:
        value = inner(cursor)
        if value is None:
            raise LogError(ErrorCode.invalid_request, "a field is null that cannot be")
        return value

    return read


def _bytes(cursor: Cursor) -> bytes | None:
    found = cursor.blob()
    return None if found is None else bytes(found)


def _uuid(cursor: Cursor) -> UUID | None:
    data = bytes(cursor.raw(16))
    return UUID(bytes=data) if any(data) else None


_SLOT, _ENTITY = 8, 48  # a reference, and an object without its fields
_SIZES = {"bytes": 40, "float64": 24, "int16": 32, "int32": 32, "int64": 32, "records": 40, "string": 56, "uuid": 72}
_SIZES |= {"timedelta_i32": 40, "timedelta_i64": 40}
_READS: dict[str, Read] = {
    "bool": lambda cursor: cursor.int8() != 0,
    "bytes": _bytes,
    "float64": Cursor.float64,
    "int8": Cursor.int8,
    "int16": Cursor.int16,
    "int32": Cursor.int32,
    "int64": Cursor.int64,
    "records": _bytes,
    "string": Cursor.text,
    "timedelta_i32": lambda cursor: timedelta(milliseconds=cursor.int32()),
    "timedelta_i64": lambda cursor: timedelta(milliseconds=cursor.int64()),
    "uuid": _uuid,
}
