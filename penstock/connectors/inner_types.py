"""What is inside nested Arrow types: arrays, structs and maps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Say whether a type passes a test, or one inside it does.

    >>> holds(pa.list_(pa.binary()), pa.types.is_binary)
    True
    """
    return test(kind) or any(holds(kind.field(n).type, test) for n in range(kind.num_fields))
