"""Which rejected rows went back already: a file for each replay into a source, beside the checkpoint's data.

A replay first notes the ids of its rows under the next number, then writes the rows. Whether it did, the source itself
can tell: a topic has the number in a ledger that is written in the same transaction, a folder has the file. So a replay
that died in between is noticed, and its rows go with the next one.
"""

from __future__ import annotations

import json

from penstock.folders import Folder
from penstock.folders.file_names import source_folder


class Replays:
    """The replays into one source of one checkpoint."""

    def __init__(self, checkpoint: Folder, source: str) -> None:
        # The dot keeps it in place when a changed plan begins a new generation.
        self._folder = checkpoint / ".replays" / source_folder(source)

    def numbers(self) -> list[int]:
        """Return the numbers of all replays that were noted."""
        names = (name.removesuffix(".json") for name in self._folder.names())
        return sorted(int(name) for name in names if name.isdigit())

    def ids(self, number: int) -> list[str]:
        """Return the rows of a replay."""
        found: list[str] = json.loads(self._folder.read(f"{number}.json") or "[]")
        return found

    def replayed(self, newest: int) -> set[str]:
        """Return the rows of all replays up to one."""
        return {one for number in self.numbers() if number <= newest for one in self.ids(number)}

    def finish(self, number: int) -> None:
        """Note that a replay was written, for a file of it may be removed when it was read."""
        self._folder.write(f"{number}.done", b"")

    def is_finished(self, number: int) -> bool:
        """Say whether a replay is known to be written."""
        return self._folder.read(f"{number}.done") is not None

    def note(self, number: int, ids: list[str]) -> None:
        """Note the rows of a replay that is about to be written; what one that died noted is forgotten."""
        self._folder.remove(f"{number}.json")
        self._folder.write(f"{number}.json", json.dumps(ids).encode(), once=True)
