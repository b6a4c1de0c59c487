"""Groups as bytes: a header in JSON, then arrays of numbers and Arrow streams, each aligned, to be read in place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.keyed.store.groups import NEVER, Groups, Numbers, TimeIndex
from penstock.values.arrow_stream import from_stream, stream_buffer

_ALIGN = 64
_LENGTH = 4
_TIMES = ("event", "processing", "expires")


def encode(groups: Groups, about: Mapping[str, Any], *, indexed: bool) -> list[memoryview]:
    """Return groups and a header as pieces of bytes; with `indexed` the time indexes are stored too."""
    arrays = dict(_arrays(groups, indexed=indexed))
    sections = [*map(_bytes_of, arrays.values()), *(memoryview(stream_buffer(table)) for table in groups.tables)]
    sizes = [len(one) for one in sections]
    header = json.dumps({**about, "arrays": [*arrays], "sizes": sizes}, separators=(",", ":")).encode()
    parts = [memoryview(len(header).to_bytes(_LENGTH, "little") + header), *sections]
    return [piece for part in parts for piece in (part, memoryview(bytes(_padded(len(part)) - len(part))))]


def _bytes_of(numbers: Numbers) -> memoryview:
    return np.ascontiguousarray(numbers).data.cast("B") if len(numbers) else memoryview(b"")


def decode(data: pa.Buffer) -> tuple[Groups, dict[str, Any]]:
    """Return the groups and the header of bytes; the groups share their memory."""
    header, at = _header(data)
    sections = []
    for size in header["sizes"]:
        sections.append(data.slice(at, size))
        at += _padded(size)
    names = header["arrays"]
    arrays = {name: np.frombuffer(one, np.int64) for name, one in zip(names, sections, strict=False)}
    hashes = arrays["hashes"]
    tables = tuple(from_stream(one) for one in sections[len(names) :])
    event, processing, expires = (arrays.get(name, np.broadcast_to(NEVER, len(hashes))) for name in _TIMES)
    starts = tuple(arrays.get(f"starts{number}", np.arange(len(hashes))) for number in range(len(tables)))
    groups = Groups(hashes, event, processing, expires, tables, starts)
    for name in _TIMES[:2]:
        if f"{name}_positions" in arrays:
            # Takes the place of what would be computed.
            vars(groups)[f"{name}_index"] = TimeIndex(arrays[f"{name}_positions"], arrays[f"{name}_times"])
    return groups, header


def _arrays(groups: Groups, *, indexed: bool) -> Iterator[tuple[str, Numbers]]:
    """Yield the numbers that are not what they are by default: no times, one row for each group."""
    yield "hashes", groups.hashes
    for name in _TIMES:
        times = getattr(groups, name)
        if not (times == NEVER).all():
            yield name, times
    for number, starts in enumerate(groups.starts):
        if groups.tables[number].num_rows != len(groups) or (starts != np.arange(len(starts))).any():
            yield f"starts{number}", starts
    for name in _TIMES[:2] if indexed else ():
        index = getattr(groups, f"{name}_index")
        if len(index.positions):
            yield f"{name}_positions", index.positions
            yield f"{name}_times", index.times


def _header(data: pa.Buffer) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(data.slice(0, _LENGTH).to_pybytes(), "little")
    header: dict[str, Any] = json.loads(data.slice(_LENGTH, size).to_pybytes())
    return header, _padded(_LENGTH + size)


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
