"""Requests of every kind and version: made up from Kafka's own schemas, and put into frames."""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.log.protocol.apis import APIS, Api

VERSIONS = [(api, version) for api in APIS.values() for version in range(api.oldest, api.newest + 1)]
# Names that exist on the broker under test are among them, so that made-up requests get past the first check.
NAMES = st.sampled_from(["good", "other", "group", "", "..", "__consumer_offsets", "a" * 300, "é\0"])
_SMALL = st.sampled_from([-2, -1, 0, 1, 2, 3, 5, 100, 2**31 - 1, -(2**31)])


def _whole(bits: int) -> st.SearchStrategy[int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.one_of(_SMALL.filter(lambda number: least <= number <= most), st.integers(least, most))


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytes": st.binary(max_size=20),
    "records": st.binary(max_size=80),
    "string": st.one_of(NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    "int8": _whole(8),
    "int16": _whole(16),
    "int32": _whole(32),
    "int64": _whole(64),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.none() | st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    # Within what a client can wait for: a made-up timeout must not keep the test waiting.
    "timedelta_i32": st.integers(-1, 20).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-1, 20).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**41).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)),
}


@cache
def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Return made-up messages of a schema."""
    hints = typing.get_type_hints(schema)
    named = {each.name: _values(each, hints[each.name]) for each in dataclasses.fields(schema)}
    return st.builds(schema, **named)


def _values(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    nullable = isinstance(hint, types.UnionType)
    kind = next(each for each in typing.get_args(hint) if each is not type(None)) if nullable else hint
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        values = st.lists(_of(inner, field.metadata.get("kafka_type")), max_size=2).map(tuple)
    else:
        values = _of(kind, field.metadata.get("kafka_type"))
    # A tagged field is absent instead of null.
    return st.one_of(st.none(), values) if nullable and "tag" not in field.metadata else values


def _of(kind: Any, kafka_type: str | None) -> st.SearchStrategy[Any]:
    return entities(kind) if dataclasses.is_dataclass(kind) else _VALUES[kafka_type or ""]


def requests(api: Api, version: int) -> st.SearchStrategy[Any]:
    """Return made-up requests of one kind and version."""
    return entities(load_request_schema(api.key, version))


def encoded(entity: Any) -> bytes:
    """Return the bytes of a message as kio writes it."""
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decoded_reply(api: Api, version: int, body: bytes) -> Any:
    """Return the reply that kio reads; all bytes have to be part of it."""
    reply, size = entity_reader(load_response_schema(api.key, version))(body, 0)
    assert size == len(body), f"{len(body) - size} bytes too many in {api.name} {version}"
    return reply


def head(api: Api, version: int, correlation: int = 7, client: bytes = b"fuzz") -> bytes:
    """Return the header of a request."""
    start = struct.pack(">hhih", api.key, version, correlation, len(client)) + client
    return start + (b"\0" if api.is_flexible(version) else b"")


def framed(data: bytes) -> bytes:
    """Return bytes with their length in front."""
    return struct.pack(">i", len(data)) + data
