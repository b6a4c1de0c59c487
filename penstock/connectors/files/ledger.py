"""The ledger of a file sink: one small file per lineage and sink, replaced with each epoch, so it never grows."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from penstock.contracts import Epoch
from penstock.errors import SinkFailed
from penstock.storage.stores import LEDGERS, STAGED, FileStore, VersionConflict

Moves = list[tuple[str, str]]


class Ledger:
    """The newest committed epoch with its files, and the only run that may commit the next.

    All files of an epoch are renamed before the next entry is written, so only the newest can be incomplete.
    """

    def __init__(self, store: FileStore, epoch: Epoch, run: str) -> None:
        """Take over the ledger: earlier runs can no longer commit. Then finish and clean up what they left."""
        self._store, self._run, self._name = store, run, f"{LEDGERS}/{_key(epoch)}.json"
        self._version: Any = None
        found = _read(store, self._name) or _Entry(None, -1, "", Moves())
        self._version, moves = found.version, found.moves
        self._write(found.epoch, found.bounds, moves)
        left = store.files(f"{STAGED}/{_key(epoch)}")
        _show(store, moves, left)
        store.remove(name for name in left if not name.startswith(f"{staging_folder(epoch, run)}/"))

    def record(self, epoch: Epoch, moves: Moves) -> None:
        """Commit an epoch by its ledger entry, then rename its files."""
        self._write(epoch.number, epoch.bounds, moves)
        self._store.publish(moves)

    def check_ownership(self) -> None:
        """Raise SinkFailed if another run has taken over the ledger."""
        found = self._store.read(self._name)
        if found is None or found[1] != self._version:
            self._raise_conflict()

    def _write(self, number: int, bounds: str, moves: Sequence[Sequence[str]]) -> None:
        text = json.dumps({"run": self._run, "epoch": number, "bounds": bounds, "files": moves})
        try:
            self._version = self._store.compare_and_swap(self._name, text.encode(), self._version)
        except VersionConflict:
            self._raise_conflict()
        self.epoch, self.bounds = number, bounds

    def _raise_conflict(self) -> NoReturn:
        if self._store.read(self._name) is None:
            message = f"the ledger {self._name} of {self._store.url} is missing"
            hint = "the folder was deleted while the job ran: run the job again, it continues from its checkpoint"
            raise SinkFailed(message, hint=hint)
        message = f"another run of this job writes to {self._store.url}; this one stops"
        raise SinkFailed(message, hint="keep only one of them running")


@dataclass(frozen=True)
class _Entry:
    """What a ledger has, and the version of its file."""

    version: Any
    epoch: int
    bounds: str
    moves: Moves


def _read(store: FileStore, name: str) -> _Entry | None:
    found = store.read(name)
    if found is None:
        return None
    try:
        entry = json.loads(found[0])
        moves = [(str(staged), str(final)) for staged, final in entry["files"]]
        return _Entry(found[1], int(entry["epoch"]), str(entry.get("bounds", "")), moves)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"the ledger {name} of {store.url} is damaged: {type(error).__name__}: {error}"
        raise SinkFailed(message, hint=_DAMAGED) from error


_DAMAGED = """it says which epochs are in the files, and whose files a crash may have left unfinished
  put the file back from a copy; or, if its job is not to be continued, remove it
  a job whose ledger is lost starts over with another folder and another --checkpoint"""


def staging_folder(epoch: Epoch, run: str) -> str:
    """Return the folder in which a run stages the files of an epoch."""
    return f"{STAGED}/{_key(epoch)}/{run}"


def finish(store: FileStore, staged: Container[str]) -> None:
    """Rename files that are committed and still staged after a crash, of any job."""
    for name, moves in _newest(store):
        if any(one in staged for one, _ in moves):
            # The process that wrote the entry may have been killed before it synced it.
            store.fsync([name])
        _show(store, moves, staged)


def newest_files(store: FileStore) -> set[str]:
    """Return the files of every ledger's newest epoch: a restart may still have to rename them."""
    return {final for _, moves in _newest(store) for _, final in moves}


def has_epochs(store: FileStore, sink: str) -> bool:
    """Return whether a sink of that name has committed an epoch, in any lineage and query."""
    names = (name for name in store.files(LEDGERS) if _sink_of(name) == sink)
    return any(found.epoch >= 0 for name in names if (found := _read(store, name)))


def _sink_of(name: str) -> str:
    return unquote(name.rpartition("/")[2].removesuffix(".json")).partition("@")[0]


def _newest(store: FileStore) -> Iterator[tuple[str, Moves]]:
    for name in store.files(LEDGERS):
        found = _read(store, name) if name.endswith(".json") else None
        if found:
            yield name, found.moves


def _show(store: FileStore, moves: Moves, staged: Container[str]) -> None:
    store.publish([(name, final) for name, final in moves if name in staged])
    # Renames of a killed run may not be synced yet, and the next epoch's entry replaces this one.
    store.fsync_names(final for _, final in moves)


def _key(epoch: Epoch) -> str:
    return f"{quote(epoch.lineage, safe='')}/{quote(epoch.sink, safe='')}"
