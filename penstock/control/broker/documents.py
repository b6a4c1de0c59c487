"""Values of records that are JSON, as objects that can be sent as JSON again."""

from __future__ import annotations

import json
from typing import Any, NoReturn

_LARGEST = 1_000_000
_DEEPEST = 50


def document_of(data: str | bytes | None) -> Any:
    """Return the value of a record as JSON; None if it is none, or too large or too deep to be shown as a tree.

    >>> document_of(b'{"price": 1.5}'), document_of(b"order 5"), document_of(b"NaN")
    ({'price': 1.5}, None, None)
    """
    if data is None or len(data) > _LARGEST:
        return None
    try:
        text = data.decode() if isinstance(data, bytes) else data
        found = json.loads(text, parse_constant=_refuse)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair has no UTF-8
    except (ValueError, RecursionError):
        return None
    return found if _depth(found) <= _DEEPEST else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _depth(value: Any) -> int:
    """Return how deep a value nests; a little more than the limit stands for all that is deeper."""
    level, depth = [value], 0
    while level and depth <= _DEEPEST:
        parts = [each for each in level if isinstance(each, dict | list)]
        level = [part for each in parts for part in (each.values() if isinstance(each, dict) else each)]
        depth += 1
    return depth
