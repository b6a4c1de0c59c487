"""Compacted segments take the place of those that they were made from, whole or not at all.

They are written in a folder of their own. The rename to `<base>-<end>.swap` is the moment: it is complete and on disk,
and from then on stands for all segments from `base` to `end`. What a crash leaves of the steps behind that, opening
does again; what was not that far is thrown away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock.log.storage.handles import sync_folder

_CLEANED = "cleaned"
_INDEXES = (".index", ".timeindex")
_PARTS = (".log", *_INDEXES, ".txnindex")


def cleaned_folder(folder: Path) -> Path:
    """Return where compaction writes, empty."""
    discard_cleaned(folder)
    cleaned = folder / _CLEANED
    cleaned.mkdir()
    return cleaned


def discard_cleaned(folder: Path) -> None:
    """Throw away what compaction has written and not swapped in."""
    shutil.rmtree(folder / _CLEANED, ignore_errors=True)


def commit_swap(cleaned: Path, end: int) -> Path:
    """Let a cleaned segment that is on disk stand for the segments from its base to `end`."""
    folder = cleaned.parent.parent
    swap = folder / f"{cleaned.stem}-{end:020d}.swap"
    os.replace(cleaned, swap)
    sync_folder(folder)
    return swap


def finish_swap(swap: Path) -> Path:
    """Remove the old segments and put the new one in their place; can be done again after a crash at any step."""
    folder, (base, end) = swap.parent, swap.stem.split("-")
    log = folder / f"{base}.log"
    stay = (log, log.with_suffix(".txnindex"))
    for path in _files_between(folder, int(base), int(end)):
        if path not in stay:
            path.unlink(missing_ok=True)
    os.replace(swap, log)
    # Only now, for an index that is missing is built anew and one that does not fit may lead astray.
    for path in ((folder / _CLEANED / log.name).with_suffix(suffix) for suffix in _INDEXES):
        if path.exists():
            os.replace(path, folder / path.name)
    sync_folder(folder)
    return log


def finish_swaps(folder: Path) -> None:
    """After a crash: throw away what was not committed, finish what was."""
    discard_cleaned(folder)
    for swap in sorted(folder.glob("*.swap")):
        finish_swap(swap)


def _files_between(folder: Path, base: int, end: int) -> Iterator[Path]:
    for path in list(folder.iterdir()):
        if path.suffix in _PARTS and path.stem.isdecimal() and base <= int(path.stem) < end:
            yield path
