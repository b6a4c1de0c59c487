"""Accumulators of Python aggregators as Spark's state holds them."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

_SAFE = {
    "builtins": {"set", "frozenset", "complex", "bytearray"},
    "datetime": {"datetime", "date", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "collections": {"OrderedDict", "Counter", "deque"},
}


def as_plain(value: Any) -> Any:
    """Return a value as JSON has it; what JSON has no form for is text."""
    return json.loads(json.dumps(value, default=str))


def pickled(data: bytes) -> list[Any]:
    """Return the accumulators of a key; what is made of the job's own classes stays closed."""
    try:
        found: list[Any] = _Careful(io.BytesIO(data)).load()
    except pickle.UnpicklingError as error:
        return [f"({error})"]
    return found


class _Careful(pickle.Unpickler):
    """Reads plain values only: a checkpoint may come from anywhere, and pickles can run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that only holds data."""
        if name in _SAFE.get(module, ()):
            return super().find_class(module, name)
        message = f"a {module}.{name}"
        raise pickle.UnpicklingError(message)
