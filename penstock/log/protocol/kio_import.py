"""Imports kio, the schemas of Kafka's messages, without hypothesis.

Where hypothesis is installed, kio registers a strategy for each of its types while it is imported. That takes memory
and time, and the first time in a folder it builds a table of all characters: 200 MB, and a folder `.hypothesis`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MISSING = object()


@contextmanager
def _without(name: str) -> Iterator[None]:
    modules: dict[str, Any] = sys.modules
    before = modules.get(name, _MISSING)
    modules[name] = None  # an import of it fails
    try:
        yield
    finally:
        if before is _MISSING:
            del modules[name]
        else:
            modules[name] = before


def import_kio() -> None:
    """Import what of kio asks for hypothesis, and let it find none."""
    with _without("hypothesis"):
        import kio.static.primitive  # noqa: F401
