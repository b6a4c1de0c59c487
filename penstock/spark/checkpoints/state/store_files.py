"""State store files of Spark's in-memory ("HDFS-backed") provider, read without Spark.

A snapshot or delta is a compressed stream of (length, key, length or -1 for deleted, value), big-endian, ended by -1.
The schemas of keys and values are in a file of the first partition.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cramjam

from penstock.errors import CheckpointDamaged
from penstock.plan.sql_expressions.types import Type
from penstock.spark.checkpoints.history import History, StateStoreFiles
from penstock.spark.checkpoints.spark_files import damage_in, decompress
from penstock.spark.checkpoints.state.unsafe_rows import decode_row, type_from_json

_IN_MEMORY = (".delta", ".snapshot")


@dataclass(frozen=True)
class StateSchema:
    """The types of a store's keys and values."""

    key: Type
    value: Type


def why_spark_is_needed(stores: list[StateStoreFiles], version: int) -> str | None:
    """Return why a version of state cannot be read without Spark; None if it can."""
    for store in stores:
        chain = next(store.chains(version), None)
        if chain is None:
            return f"{store.path} lacks files of this epoch"
        if any(not name.endswith(_IN_MEMORY) for name in chain):
            return "its state is RocksDB's, which only Spark reads"
        versions = [name.rpartition("/")[2].split("_")[0].split(".")[0] for name in chain]
        if len({*versions}) < len(versions):
            return "several attempts of one epoch left files, and only Spark knows which are valid"
    return None


def state_rows(
    history: History, store: StateStoreFiles, version: int, schema: StateSchema
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the keys and values of a store, each as the fields of a row."""
    for key, value in _entries(history, store, version).items():
        try:
            yield decode_row(key, schema.key.parts), decode_row(value, schema.value.parts)
        except (ValueError, struct.error, IndexError) as error:
            message = f"state of {history.folder}/state/{store.path} does not fit its schema: {error}"
            raise CheckpointDamaged(message, hint="`penstock checkpoints` shows what is damaged") from error


def read_schema(history: History, operator: int, name: str = "") -> StateSchema:
    """Return the schemas of a store; they are written once, for the first partition."""
    path = f"state/{operator}/0/{name + '/' if name else ''}_metadata/schema"
    data = history.folder.read(path)
    if data is None:
        message = f"{history.folder}/{path} is missing: the schema of the state is unknown"
        raise CheckpointDamaged(message, hint="put the file back from a copy")
    try:
        key, value = _schema_texts(data)
        return StateSchema(type_from_json(json.loads(key)), type_from_json(json.loads(value)))
    except (ValueError, KeyError, struct.error, IndexError, TypeError) as error:
        message = f"{history.folder}/{path} cannot be read: {error}"
        raise CheckpointDamaged(message, hint="put the file back from a copy") from error


def _schema_texts(data: bytes) -> tuple[str, str]:
    """Return the schemas of keys and values: in Java's UTF format, split because its length is limited."""
    version, at = _utf(data, 0)
    found = []
    for _ in range(2):
        pieces = 1
        if version != "v1":
            (pieces,) = struct.unpack_from(">i", data, at)
            at += 4
        texts = []
        for _ in range(pieces):
            text, at = _utf(data, at)
            texts.append(text)
        found.append("".join(texts))
    if version not in ("v1", "v2"):
        message = f"schemas of version {version!r}"
        raise ValueError(message)
    return found[0], found[1]


def _utf(data: bytes, at: int) -> tuple[str, int]:
    """Return a text in Java's modified UTF-8: zero is two bytes, characters beyond 16 bits are two surrogates."""
    (size,) = struct.unpack_from(">H", data, at)
    text = data[at + 2 : at + 2 + size].replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16"), at + 2 + size


def _entries(history: History, store: StateStoreFiles, version: int) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    for name in next(store.chains(version)):
        for key, value in _changes(history, name):
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
    return entries


def count_keys(history: History, names: list[str]) -> int | None:
    """Count the keys of a state that is built from these files; None for RocksDB, whose files only Spark reads."""
    if any(name.endswith((".zip", ".changelog")) for name in names):
        return None
    keys: set[bytes] = set()
    for name in names:
        for key, value in parse_changes(history.read(name)):
            keys.discard(key) if value is None else keys.add(key)
    return len(keys)


def _changes(history: History, name: str) -> Iterator[tuple[bytes, bytes | None]]:
    if (reason := damage_in(history, name)) is not None:
        raise _damaged(history, name, reason)
    try:
        yield from parse_changes(history.read(name))
    except (ValueError, struct.error, cramjam.DecompressionError) as error:
        raise _damaged(history, name, f"cannot be read ({error})") from error


def parse_changes(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys of a delta or snapshot with their values; None for a deleted key."""
    content, at = b"".join(decompress(data)), 0
    while (length := struct.unpack_from(">i", content, at)[0]) >= 0:
        key = content[at + 4 : at + 4 + length]
        at += 4 + length
        (size,) = struct.unpack_from(">i", content, at)
        value = content[at + 4 : at + 4 + size] if size >= 0 else None
        at += 4 + max(size, 0)
        yield key, value


def _damaged(history: History, name: str, reason: str) -> CheckpointDamaged:
    message = f"{history.folder}/{name} {reason}"
    hint = "`penstock checkpoints` shows what is damaged; --at EPOCH shows an earlier state, if that is intact"
    return CheckpointDamaged(message, hint=hint)
