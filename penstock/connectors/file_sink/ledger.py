"""What is committed: one small file for each (lineage, sink), replaced with each epoch, so it never grows."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from penstock.connectors.file_sink.places import LEDGERS, STAGED, Outrun, Place
from penstock.contracts import Epoch
from penstock.errors import SinkFailed

Moves = list[tuple[str, str]]


class Ledger:
    """The newest committed epoch with its files, and the only run that may commit the next.

    An epoch is shown whole before the next one is written here, so only the newest can be half shown.
    """

    def __init__(self, place: Place, epoch: Epoch, run: str) -> None:
        """Take the ledger over: no earlier run can commit from here on. Then finish and clear what those left."""
        self._place, self._run, self._name = place, run, f"{LEDGERS}/{_key(epoch)}.json"
        self._version: Any = None
        self.epoch, self.bounds, moves = -1, "", Moves()
        found = place.read(self._name)
        if found:
            noted = json.loads(found[0])
            self._version, self.epoch, moves = found[1], noted["epoch"], noted["files"]
            self.bounds = noted.get("bounds", "")
        self._write(self.epoch, self.bounds, moves)
        left = place.files(f"{STAGED}/{_key(epoch)}")
        _show(place, moves, left)
        place.remove(name for name in left if not name.startswith(f"{staging_folder(epoch, run)}/"))

    def record(self, epoch: Epoch, moves: Moves) -> None:
        """Commit an epoch: this decides, and then its files are shown."""
        self._write(epoch.number, epoch.bounds, moves)
        self._place.show(moves)

    def refuse_if_taken(self) -> None:
        """Raise SinkFailed if another run has taken the ledger over."""
        found = self._place.read(self._name)
        if found is None or found[1] != self._version:
            self._refuse()

    def _write(self, number: int, bounds: str, moves: Sequence[Sequence[str]]) -> None:
        text = json.dumps({"run": self._run, "epoch": number, "bounds": bounds, "files": moves})
        try:
            self._version = self._place.swap(self._name, text.encode(), self._version)
        except Outrun:
            self._refuse()
        self.epoch, self.bounds = number, bounds

    def _refuse(self) -> NoReturn:
        if self._place.read(self._name) is None:
            message = f"the ledger {self._name} of {self._place.url} is gone"
            hint = "the folder was removed while the job ran: run the job again, it goes on from its checkpoint"
            raise SinkFailed(message, hint=hint)
        message = f"another run of this job writes to {self._place.url}, so this one stops"
        raise SinkFailed(message, hint="leave one of them running")


def staging_folder(epoch: Epoch, run: str) -> str:
    """Return where a run stages what it will commit to the epoch's ledger."""
    return f"{STAGED}/{_key(epoch)}/{run}"


def finish(place: Place, staged: Container[str]) -> None:
    """Show what crashes left committed and still staged, whichever job's it is."""
    for name, moves in _newest(place):
        if any(one in staged for one, _ in moves):
            # Who wrote the entry may have been killed before it was on the disk, and it decides.
            place.harden([name])
        _show(place, moves, staged)


def newest_files(place: Place) -> set[str]:
    """Return the files of every ledger's newest epoch: those that a restart may still have to show."""
    return {final for _, moves in _newest(place) for _, final in moves}


def has_epochs(place: Place, sink: str) -> bool:
    """Say whether a sink of that name has committed an epoch, in any lineage and query."""
    names = (name for name in place.files(LEDGERS) if _sink_of(name) == sink)
    return any(json.loads(found[0])["epoch"] >= 0 for name in names if (found := place.read(name)))


def _sink_of(name: str) -> str:
    return unquote(name.rpartition("/")[2].removesuffix(".json")).partition("@")[0]


def _newest(place: Place) -> Iterator[tuple[str, Moves]]:
    for name in place.files(LEDGERS):
        found = place.read(name) if name.endswith(".json") else None
        if found:
            yield name, json.loads(found[0])["files"]


def _show(place: Place, moves: Moves, staged: Container[str]) -> None:
    place.show([(name, final) for name, final in moves if name in staged])
    # Names that a killed run has given may not be on the disk yet, and the next epoch's entry replaces this one.
    place.settle(final for _, final in moves)


def _key(epoch: Epoch) -> str:
    return f"{quote(epoch.lineage, safe='')}/{quote(epoch.sink, safe='')}"
