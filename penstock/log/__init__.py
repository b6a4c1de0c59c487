"""The event log: a durable, single-node broker that speaks the Kafka protocol. Knows no pipelines."""

from __future__ import annotations

import sys
from typing import Any


def _import_kio_without_hypothesis() -> None:
    """Import kio, the schemas of Kafka's messages, as if hypothesis were not installed.

    Where it is, kio registers a strategy for each of its types during the import. That costs memory and time, and the
    first time in a folder it builds a table of all characters: 200 MB, and a folder `.hypothesis`.
    """
    modules: dict[str, Any] = sys.modules
    installed = "hypothesis" in modules
    before = modules.get("hypothesis")
    modules["hypothesis"] = None  # makes `import hypothesis` fail
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        if installed:
            modules["hypothesis"] = before
        else:
            del modules["hypothesis"]


_import_kio_without_hypothesis()  # before any module of the log imports kio in its own way
