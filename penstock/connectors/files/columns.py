"""The columns of the files in a sink's folder: a job with incompatible columns does not start."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.formats.writers import ENDINGS
from penstock.errors import BadSchema
from penstock.schema import Schema, spark_type
from penstock.storage.stores import INTERNAL_FOLDER, FileStore, VersionConflict

COLUMNS = f"{INTERNAL_FOLDER}/columns"
# The largest file that is downloaded to read its footer.
_MOST_BYTES = 1 << 26
_HINT = (
    "write to another folder, or give the columns their old names and types; columns may be added: "
    "older files read as null there"
)


def check_columns(store: FileStore, format: str, sink: str, schema: Schema) -> None:
    """Store the columns of a sink; raise BadSchema if they are incompatible with the files in its folder.

    Sinks of other names may share the folder with other columns, if they did so from the start.
    """
    name = f"{COLUMNS}/{format}/{quote(sink.partition('@')[0], safe='')}.json"
    now = {field.name: spark_type(field.type) for field in schema.arrow}
    while True:
        found = store.read(name)
        known: dict[str, str] = json.loads(found[0]) if found else _of_files(store, format)
        changes = _changes(known, now)
        if changes and _has_files(store, format):
            message = "\n  ".join([f"{store.url} has {format} files with other columns", *changes])
            raise BadSchema(message, hint=_HINT)
        if known == now and found:
            return
        with contextlib.suppress(VersionConflict):
            store.compare_and_swap(name, json.dumps(now).encode(), found[1] if found else None)
            return


def _changes(known: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what could no longer be read as one table."""
    added = [name for name in now if name not in known]
    found = []
    for name, kind in known.items():
        if name not in now:
            same = [other for other in added if now[other] == kind]
            renamed = f"; was it renamed to '{same[0]}'?" if len(same) == 1 else ""
            found.append(f"column '{name}' ({kind}) is missing now{renamed}")
        elif now[name] != kind:
            found.append(f"column '{name}' is {kind} there and {now[name]} now")
    return found


def _of_files(store: FileStore, format: str) -> dict[str, str]:
    """Return the columns of an existing Parquet file; for csv and json they are unknown unless stored."""
    if format != "parquet":
        return {}
    sizes = {name: found.size for name, found in store.files("").items() if name.endswith(ENDINGS[format])}
    smallest = min(sizes, key=lambda name: sizes[name], default=None)
    if smallest is None or sizes[smallest] > _MOST_BYTES:
        return {}
    with contextlib.suppress(pa.ArrowException, BadSchema, FileNotFoundError), store.local_copies([smallest]) as paths:
        return {field.name: spark_type(field.type) for field in pq.read_schema(paths[0])}
    return {}


def _has_files(store: FileStore, format: str) -> bool:
    return any(name.endswith(ENDINGS[format]) for name in store.files(""))
