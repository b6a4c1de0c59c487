"""Which columns the files of a folder have: a job that would write others under the same names does not start."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.file_sink.places import OWN, Outrun, Place
from penstock.connectors.writers import ENDINGS
from penstock.errors import BadSchema
from penstock.schema import Schema, spark_type

COLUMNS = f"{OWN}/columns"
# A footer is read from a file that is this small where a store has to hand it over whole.
_MOST_BYTES = 1 << 26
_HINT = (
    "write to another folder, or give the columns their old names and types; columns may be added: "
    "older files read as null there"
)


def keep_columns(place: Place, format: str, sink: str, schema: Schema) -> None:
    """Write down the columns of a sink; raise BadSchema if they are not those that the files of its folder have.

    Sinks of other names may share the folder with other columns, if they did so from the beginning.
    """
    name = f"{COLUMNS}/{format}/{quote(sink.partition('@')[0], safe='')}.json"
    now = {field.name: spark_type(field.type) for field in schema.arrow}
    while True:
        found = place.read(name)
        known: dict[str, str] = json.loads(found[0]) if found else _of_files(place, format)
        changes = _changes(known, now)
        if changes and _has_files(place, format):
            message = "\n  ".join([f"{place.url} holds {format} files with other columns", *changes])
            raise BadSchema(message, hint=_HINT)
        if known == now and found:
            return
        with contextlib.suppress(Outrun):
            place.swap(name, json.dumps(now).encode(), found[1] if found else None)
            return


def _changes(known: dict[str, str], now: dict[str, str]) -> list[str]:
    """Say what would no longer be read as one table."""
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


def _of_files(place: Place, format: str) -> dict[str, str]:
    """Return the columns of a file that is there; of csv and json only what was written down is known."""
    if format != "parquet":
        return {}
    sizes = {name: found.size for name, found in place.files("").items() if name.endswith(ENDINGS[format])}
    smallest = min(sizes, key=lambda name: sizes[name], default=None)
    if smallest is None or sizes[smallest] > _MOST_BYTES:
        return {}
    with contextlib.suppress(pa.ArrowException, BadSchema, FileNotFoundError), place.fetched([smallest]) as paths:
        return {field.name: spark_type(field.type) for field in pq.read_schema(paths[0])}
    return {}


def _has_files(place: Place, format: str) -> bool:
    return any(name.endswith(ENDINGS[format]) for name in place.files(""))
