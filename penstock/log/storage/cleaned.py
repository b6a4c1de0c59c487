"""How far compaction has come in a partition."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import NamedTuple

from penstock.log.storage.snapshot import write_whole

log = logging.getLogger("penstock.log")
_FILE = "cleaned.json"


class Cleaned(NamedTuple):
    """Before `offset` each key is there once; before `gaps` offsets may be missing.

    They differ while compaction swaps segments: gaps are announced before there are any.
    """

    offset: int = 0
    gaps: int = 0


def read_cleaned(folder: Path) -> Cleaned:
    """Return what was saved; if it cannot be read, gaps may be anywhere."""
    path = folder / _FILE
    if not path.exists():
        return Cleaned()
    try:
        return Cleaned(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        log.error("%s cannot be read (%s): compaction starts over", path, error)
        return Cleaned(0, 2**63 - 1)


def write_cleaned(folder: Path, cleaned: Cleaned) -> None:
    """Save it."""
    write_whole(folder / _FILE, json.dumps(cleaned._asdict()).encode())
