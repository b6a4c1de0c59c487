"""Folders and their names on the disk, so that a power cut loses neither.

A file survives a power cut if its content was synced, and the folder that its name is in, and the folder that this
one's name is in, and so on. Who makes a folder may be killed before it syncs, so each process syncs the names above a
folder once, whoever made it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

_AT_ONCE = 16
_MOST = 10_000
# Folders whose names, and those of all above, this process knows to be on the disk.
_settled: set[str] = set()


def sync(path: str | os.PathLike[str]) -> None:
    """Have a file's content, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Iterable[str]) -> None:
    """Sync files and folders side by side: the file system writes its journal once for many."""
    these = list(dict.fromkeys(paths))
    if len(these) < 2:
        for path in these:
            sync(path)
        return
    with ThreadPoolExecutor(min(len(these), _AT_ONCE)) as pool:
        for _ in pool.map(sync, these):
            pass


def settle(folders: Iterable[str | os.PathLike[str]]) -> None:
    """Have the names of folders, and of those above them, on the disk."""
    new: dict[str, str] = {}
    for folder in folders:
        at = os.path.abspath(folder)
        while at not in _settled and at not in new and (above := os.path.dirname(at)) != at:
            new[at] = above
            at = above
    sync_all(path for path in dict.fromkeys(new.values()) if os.access(path, os.R_OK))
    if len(_settled) + len(new) > _MOST:
        _settled.clear()
    _settled.update(new)


def make_folders(folders: Iterable[str | os.PathLike[str]]) -> None:
    """Make folders, with those above them that are missing, and have their names on the disk."""
    these = [os.path.abspath(folder) for folder in folders]
    for folder in these:
        at = folder
        while not os.path.isdir(at):
            _settled.discard(at)
            at = os.path.dirname(at)
        os.makedirs(folder, exist_ok=True)
    settle(these)
