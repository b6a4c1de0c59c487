"""The buffers of Spark's aggregates that are bytes in its state: sets, lists, counted values and digests, decoded."""

from __future__ import annotations

import struct
from typing import Any

from penstock.plan.types import Type, array, read
from penstock.plan.types import struct as struct_of
from penstock.spark.checkpoints.unsafe_rows import decode_row

LISTS = ("collect_list", "collect_set", "array_agg")
COUNTED = ("percentile", "percentile_cont", "percentile_disc", "median", "mode")
DIGESTS = ("percentile_approx", "approx_percentile")
_BIGINT = Type("bigint")


def shown_buffer(data: bytes, function: str, kind: str) -> Any:
    """Return the content of a buffer; the bytes themselves where the function, or what it takes, is not known."""
    if function in LISTS and kind:
        found = decode_row(data, [array(read(kind))])[0]
        return sorted(found, key=_order) if function == "collect_set" else found
    if function in COUNTED and kind:
        return _counted(data, read(kind))
    return _digest(data) if function in DIGESTS else data


def partials(data: bytes, kind: str) -> list[Any]:
    """Return the partial accumulators of a window, oldest first; only the job's own code could merge them."""
    element = struct_of([("at", _BIGINT), ("acc", read(kind))])
    found = decode_row(data, [array(element)])[0]
    return [one["acc"] for one in sorted(found, key=lambda one: one["at"] or 0)]


def _counted(data: bytes, kind: Type) -> dict[str, int]:
    """Return values and how often each came: rows of both, each with its length before it, and -1 at the end."""
    found, at = [], 0
    while (size := struct.unpack_from(">i", data, at)[0]) >= 0:
        value, count = decode_row(data[at + 4 : at + 4 + size], [kind, _BIGINT])
        found.append((value, count))
        at += 4 + size
    return {str(value): count for value, count in sorted(found, key=lambda pair: _order(pair[0]))}


def _digest(data: bytes) -> dict[str, Any]:
    """Return how many rows a digest stands for, and the values that it keeps of them."""
    rows, samples = struct.unpack_from(">qi", data, 12)
    return {"rows": rows, "values": [struct.unpack_from(">d", data, 24 + 24 * number)[0] for number in range(samples)]}


def _order(value: Any) -> tuple[bool, Any]:
    return value is not None, str(value) if isinstance(value, dict | list) else value
