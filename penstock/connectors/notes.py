"""What sources share: small files in the checkpoint, and even cuts."""

from __future__ import annotations

import itertools
import os

from penstock.folders.durable import make_folders, sync


def read_note(path: str | None) -> str | None:
    """Return a small file's text, or None if it is not there."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def write_note(path: str, text: str) -> None:
    """Write a small file, whole or not at all, and have it on the disk."""
    make_folders([os.path.dirname(path)])
    scratch = f"{path}.tmp"
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
    sync(os.path.dirname(path) or ".")


def even_cuts(first: int, last: int, pieces: int, least: int = 1) -> list[tuple[int, int]]:
    """Cut a range into at most `pieces` of nearly the same size, each of `least` or more if possible.

    >>> even_cuts(0, 10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    count = max(1, min(pieces, (last - first) // least))
    edges = [first + (last - first) * n // count for n in range(count + 1)]
    return [(lo, hi) for lo, hi in itertools.pairwise(edges) if lo < hi]
