"""Requests read and replies written by kio's schemas, which are generated from Kafka's own.

A handler answers with plain dicts for all versions at once; here each version takes the fields that it has.
"""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.apis import Api
from penstock.log.protocol.reading import read_entity

Fields = Mapping[str, Any]
T = TypeVar("T")


def given(request: Any, name: str, default: Any) -> Any:
    """Return a field that older versions of a request do not have."""
    return getattr(request, name, default)


def distinct(elements: Iterable[T]) -> list[T]:
    """Return each element once, in order: one that is repeated thousands of times is answered once."""
    return list(dict.fromkeys(elements))


def read_request(api: Api, version: int, body: bytes | memoryview) -> Any:
    """Decode a request; what is no such request is refused."""
    try:
        return read_entity(load_request_schema(api.key, version), memoryview(body))
    except (LogError, struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise LogError(ErrorCode.invalid_request, f"no {api.name} request of version {version}: {error}") from error


def write_reply(api: Api, version: int, fields: Fields) -> bytes:
    """Encode a reply from what the handler said."""
    schema = load_response_schema(api.key, version)
    out = BytesIO()
    entity_writer(schema)(out, _builder(schema)(fields))
    return out.getvalue()


def error_reply(api: Api, version: int, error: LogError) -> bytes | None:
    """Encode a reply that says only why the whole request failed; None if its schema has no place for that."""
    names = {each.name for each in dataclasses.fields(_any(load_response_schema(api.key, version)))}
    if "error_code" not in names:
        return None
    return write_reply(api, version, {"error_code": error.code, "error_message": error.message})


def _any(value: Any) -> Any:
    return value


@cache
def _builder(schema: Any) -> Callable[[Fields], Any]:
    """Return what makes an entity of a dict: one converter per field, found once."""
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
        return lambda values: tuple(map(item, values))
    return _one(inner, field.metadata.get("kafka_type"))


def _one(kind: Any, kafka_type: str | None) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(kind):
        made: Callable[[Any], Any] = _builder(_any(kind))
        return made
    return _CONVERTERS.get(kafka_type or "", lambda value: value)


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


def _default(field: dataclasses.Field[Any], hint: Any) -> Any:
    """Return what a field is when the handler leaves it out."""
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
