"""The leader epochs of a partition: a new one begins where a torn tail was cut off."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from penstock.log.storage.snapshot import write_whole

log = logging.getLogger("penstock.log")
_FILE = "leader-epochs.json"
Epochs = list[tuple[int, int]]  # (leader epoch, its first offset)


def read_epochs(folder: Path) -> Epochs | None:
    """Return the epochs, oldest first; None if they cannot be read."""
    path = folder / _FILE
    try:
        epochs = [(int(epoch), int(start)) for epoch, start in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError) as error:
        log.error("%s cannot be read (%s): leader epochs are not checked", path, error)
        return None
    return epochs or None


def write_epochs(folder: Path, epochs: Epochs, *, sync: bool = True) -> None:
    """Save the epochs."""
    write_whole(folder / _FILE, json.dumps(epochs).encode(), sync=sync)
