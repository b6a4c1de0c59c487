"""The runs that the state in Spark's store names: without them keyed state is lost."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import cramjam

from penstock.errors import PenstockError
from penstock.keyed.store import manifest, store_set
from penstock.keyed.store.manifest import Manifest, manifest_from
from penstock.keyed.store.store_set import StoreSet
from penstock.spark.checkpoints.history import History, StateStoreFiles, state_version
from penstock.spark.checkpoints.state.rocksdb_files import rocksdb_values
from penstock.spark.checkpoints.state.store_files import StateSchema, read_schema, state_rows, why_spark_is_needed
from penstock.spark.checkpoints.state.unsafe_rows import decode_row

_UNREADABLE = (FileNotFoundError, ValueError, KeyError, IndexError, TypeError, struct.error, cramjam.DecompressionError)


def runs_named(history: History, operator: int, epoch: int) -> set[str] | None:
    """Return the runs of an operator's state after an epoch, by their paths below its folder; None if unknown.

    It is unknown where Spark's files are damaged, which is reported by their own names, or only Spark can read them:
    RocksDB's in an object store.
    """
    stores = [store for store in history.stores if store.operator == operator]
    try:
        schema = read_schema(history, operator)
        if not _is_in_buckets(schema):
            return set()
        return {name for store in stores for name in _of_store(history, store, epoch, schema)}
    except (*_UNREADABLE, PenstockError):
        return None


def _is_in_buckets(schema: StateSchema) -> bool:
    value = schema.value
    return value.fields[:1] == ("groupState",) and "state" in value.parts[0].fields


def _of_store(history: History, store: StateStoreFiles, epoch: int, schema: StateSchema) -> Iterator[str]:
    for value in _values(history, store, epoch + 1, schema):
        state = value[0] and value[0]["state"]
        if state:
            yield from _of_bucket(bytes(state))


def _values(history: History, store: StateStoreFiles, version: int, schema: StateSchema) -> Iterator[list[Any]]:
    """Yield the values of a version of state, each as the fields of a row."""
    if why_spark_is_needed([store], version) is None:
        yield from (value for _, value in state_rows(history, store, version, schema))
        return
    chain = next(store.chains(version), [])
    versions = [state_version(name) for name in chain]
    if not chain or len({*versions}) < len(versions):
        message = f"state/{store.path}: which files are valid is unknown"
        raise ValueError(message)
    for value in rocksdb_values(history, chain):
        yield decode_row(value, schema.value.parts)


def _of_bucket(state: bytes) -> Iterator[str]:
    if state.startswith(store_set.VERSION):
        stores = StoreSet.of(state)
        for number in stores.numbers:
            yield from _of_manifest(stores.get(number).manifest, f"{number}/")
    elif state.startswith(manifest.VERSION):
        yield from _of_manifest(manifest_from(state), "")


def _of_manifest(found: Manifest, below: str) -> Iterator[str]:
    yield from (f"{found.bucket}/{below}{run.name}" for run in found.runs)
