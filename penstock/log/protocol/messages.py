"""Decoding of requests and encoding of replies by kio's schemas, which are generated from Kafka's own.

A handler returns plain dicts for all versions at once; each version takes the fields that it has. Requests are decoded
here because kio's own reader trusts every count: one request with a huge count would end the process.
"""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, Generic, TypeVar
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.apis import Api
from penstock.log.protocol.cursor import Cursor

Fields = Mapping[str, Any]
T = TypeVar("T")
K = TypeVar("K")
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "error_code": ErrorCode,
    "timedelta_i32": lambda ms: timedelta(milliseconds=ms),
    "timedelta_i64": lambda ms: timedelta(milliseconds=ms),
    "datetime_i64": lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms),
}
_ZEROS: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
    "float64": 0.0,
}
Read = Callable[[Cursor], Any]
_SLOT, _ENTITY = 8, 48  # a reference, and an object without its fields
_SIZES = {"bytes": 40, "float64": 24, "int16": 32, "int32": 32, "int64": 32, "records": 40, "string": 56, "uuid": 72}
_SIZES |= {"timedelta_i32": 40, "timedelta_i64": 40}


def given(request: Any, name: str, default: Any) -> Any:
    """Return a field that older versions of a request lack."""
    return getattr(request, name, default)


def distinct(elements: Iterable[T]) -> list[T]:
    """Return each element once, in order: one that is repeated thousands of times is processed once.

    Elements with fields that do not change the answer are never the same. Those are compared by what is answered: a
    topic, a partition, a group.
    """
    return list(dict.fromkeys(elements))


def grouped(elements: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the elements by what each asks for, in order: that is answered once for all of them."""
    found: dict[K, list[T]] = {}
    for each in elements:
        found.setdefault(key(each), []).append(each)
    return found


class Lazy(Generic[T]):
    """An array of a reply whose elements are made while it is encoded: all at once they take ten times its size."""

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[Any], T], items: Collection[Any]) -> None:
        self._make = make
        self._items = items

    def __len__(self) -> int:
        """Return how many elements there are."""
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """Make the elements one by one."""
        return map(self._make, self._items)

    def __contains__(self, item: object) -> bool:
        """Return whether an element is equal to a value."""
        return any(each == item for each in self)


def read_request(api: Api, version: int, body: bytes | memoryview) -> Any:
    """Decode a request; refuse malformed bytes."""
    try:
        return read_entity(load_request_schema(api.key, version), memoryview(body))
    except (LogError, struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise LogError(ErrorCode.invalid_request, f"no {api.name} request of version {version}: {error}") from error


def write_reply(api: Api, version: int, fields: Fields) -> bytes:
    """Encode a reply from the fields that a handler returned."""
    schema = load_response_schema(api.key, version)
    out = BytesIO()
    entity_writer(schema)(out, _builder(schema)(fields))
    return out.getvalue()


def error_reply(api: Api, version: int, error: LogError) -> bytes | None:
    """Encode an error reply to a whole request; None if its schema has no error code."""
    names = {each.name for each in dataclasses.fields(_any(load_response_schema(api.key, version)))}
    if "error_code" not in names:
        return None
    return write_reply(api, version, {"error_code": error.code, "error_message": error.message})


def _any(value: Any) -> Any:
    return value


@cache
def _builder(schema: Any) -> Callable[[Fields], Any]:
    """Return a function from a dict to an entity: one converter per field, computed once."""
    hints = typing.get_type_hints(schema)
    makers = [_maker(each, hints[each.name]) for each in dataclasses.fields(schema)]
    return lambda fields: schema(**{name: make(fields) for name, make in makers})


def _maker(field: dataclasses.Field[Any], hint: Any) -> tuple[str, Callable[[Fields], Any]]:
    name, convert, default, optional = field.name, _converter(field, hint), _default(field, hint), _is_optional(hint)

    def make(fields: Fields) -> Any:
        value = fields.get(name)
        if value is not None:
            return convert(value)
        return None if optional and name in fields else default

    return name, make


def _converter(field: dataclasses.Field[Any], hint: Any) -> Callable[[Any], Any]:
    inner = _without_none(hint)
    if typing.get_origin(inner) is tuple:
        item = _one(_without_none(typing.get_args(inner)[0]), field.metadata.get("kafka_type"))
        return lambda values: Lazy(item, values) if values else ()
    return _one(inner, field.metadata.get("kafka_type"))


def _one(kind: Any, kafka_type: str | None) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(kind):
        made: Callable[[Any], Any] = _builder(_any(kind))
        return made
    return _CONVERTERS.get(kafka_type or "", lambda value: value)


def _default(field: dataclasses.Field[Any], hint: Any) -> Any:
    """Return the value of a field that the handler leaves out."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if _is_optional(hint):
        return None
    inner = _without_none(hint)
    if typing.get_origin(inner) is tuple:
        return ()
    if dataclasses.is_dataclass(inner):
        return _builder(_any(inner))({})
    return _ZEROS.get(field.metadata.get("kafka_type", ""), 0)


def _is_optional(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)


def _without_none(hint: Any) -> Any:
    if not _is_optional(hint):
        return hint
    kinds: Sequence[Any] = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0]


def read_entity(schema: Any, data: memoryview, at: int = 0) -> Any:
    """Decode a message of a schema.

    Trailing bytes are ignored, as in Kafka: librdkafka sends one to three after some of its requests.
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
        read = _array(_read_one(item, kafka_type), _size(item, kafka_type))
    else:
        read = _read_one(kind, kafka_type)
        if nullable and not kafka_type:
            return _nullable_entity(read)
    return read if nullable else _never_null(read)


def _read_one(kind: Any, kafka_type: str) -> Read:
    return _READS[kafka_type] if kafka_type else _entity(kind)


def _size(kind: Any, kafka_type: str) -> int:
    """Estimate the memory of an array element, without the text and bytes in it."""
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
    """Read an entity that follows a null marker."""
    return lambda cursor: None if cursor.int8() < 0 else inner(cursor)


def _never_null(inner: Read) -> Read:
    def read(cursor: Cursor) -> Any:
        value = inner(cursor)
        if value is None:
            raise LogError(ErrorCode.invalid_request, "a field that is not nullable is null")
        return value

    return read


def _bytes(cursor: Cursor) -> bytes | None:
    found = cursor.blob()
    return None if found is None else bytes(found)


def _uuid(cursor: Cursor) -> UUID | None:
    data = bytes(cursor.raw(16))
    return UUID(bytes=data) if any(data) else None


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
