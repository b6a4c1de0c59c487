"""Committed files merged over epochs, while jobs write and others read.

One note says which files a merged one replaces; whoever finds it there finishes it. It is written when the merged file
is whole, out of sight. Files of a ledger's newest epoch are left alone, for a restart may still have to show them, so
a file that was merged never comes back.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from penstock.connectors.file_sink.ledger import newest_files
from penstock.connectors.file_sink.merging import layout, rewrite
from penstock.connectors.file_sink.places import OWN, STAGED, Outrun, Place, staged_name
from penstock.connectors.writers import ENDINGS
from penstock.errors import MissingInput, SinkFailed

_NOTE = f"{OWN}/compaction.json"
_STAGED = f"{STAGED}/compaction"
_OURS = re.compile(r"(part-.*|whole-\d+)\.(parquet|csv|json)")
_BARRIERS = re.compile(r"whole-\d+-in-work\.parquet")
# Readers take it for a broken Parquet file, and fail instead of missing rows.
_BARRIER = b"PENSTOCK: the files of this folder are being merged; list it again in a moment\n"


@dataclass
class Compacted:
    """What a compaction did."""

    merged: int = 0
    into: int = 0
    left: int = 0


@dataclass(frozen=True)
class _Group:
    folder: str
    ending: str
    names: list[str]


class Overtaken(SinkFailed):
    """Another compaction has gone on with the same note."""


class Compaction:
    """Merges committed files. Its note is of the version that was there before it listed them, or it stops."""

    def __init__(self, place: Place) -> None:
        """Finish what an earlier one has noted, whoever began it; each step may be done twice."""
        self._place = place
        found = place.read(_NOTE)
        noted = json.loads(found[0]) if found else {"number": 0}
        self._version: Any = found[1] if found else None
        self._number: int = noted["number"]
        if "from" in noted:
            # Who wrote the note may have been killed before it was on the disk, and nothing else knows the merged file.
            place.harden([_NOTE])
            self._finish(noted)
        elif found:
            # One that finished what another had finished too, and was killed, may have left its barrier.
            place.remove(name for name in place.files("") if _BARRIERS.fullmatch(os.path.basename(name)))

    def run(self, below: int) -> Compacted:
        """Merge files smaller than `below`, those of one folder, into files of about that size."""
        groups, left = _groups(self._place, below)
        done = Compacted(left=left)
        for part in (part for group in groups for part in _alike(self._place, group)):
            self._merge(part)
            done.merged += len(part.names)
            done.into += 1
        return done

    def _merge(self, group: _Group) -> None:
        place, ending = self._place, group.ending
        staged, path = staged_name(_STAGED), place.scratch(_STAGED)
        with place.fetched(group.names) as paths:
            rewrite(paths, path, ending)
        place.put(path, staged)
        place.harden([staged])
        # Stores list by name: the files, the barrier, the merged one, so that no listing can miss all three.
        name = os.path.join(group.folder, f"whole-{self._number + 1:08}")
        barrier = f"{name}-in-work{ending}" if ending == ENDINGS["parquet"] else None
        noted = {"from": group.names, "staged": staged, "final": name + ending, "barrier": barrier}
        self._note(self._number + 1, noted)
        self._finish(noted)

    def _finish(self, noted: dict[str, Any]) -> None:
        """Put the merged file in the place of the others; while it is neither, the barrier makes readers fail."""
        if noted["barrier"]:
            path = self._place.scratch(_STAGED)
            with open(path, "wb") as file:
                file.write(_BARRIER)
            self._place.put(path, noted["barrier"])
            self._place.harden([noted["barrier"]])
        self._place.remove(noted["from"])
        # This syncs the folder too, also where the merged file was shown before: that the others are gone must last.
        self._place.show([(noted["staged"], noted["final"])])
        if noted["barrier"]:
            self._place.remove([noted["barrier"]])
            self._place.settle([noted["barrier"]])
        self._note(self._number, {})

    def _note(self, number: int, noted: dict[str, Any]) -> None:
        text = json.dumps({"number": number} | noted)
        try:
            self._version = self._place.swap(_NOTE, text.encode(), self._version)
        except Outrun as error:
            message = f"another compaction of {self._place.url} is under way"
            raise Overtaken(message, hint="nothing is lost or doubled: let it end, and try again") from error
        self._number = number


def refuse_strange(place: Place) -> None:
    """Raise MissingInput if no file sink has written here."""
    if not place.files(OWN):
        message = f"no file sink has written to {place.url!r}"
        raise MissingInput(message, hint="give the folder or URL that the pipeline's files(...) names")


def _groups(place: Place, below: int) -> tuple[list[_Group], int]:
    """Return what is to be merged, and how many small files are left alone."""
    listed = place.files("")
    # Read after the listing: of what was listed, only the newest epochs can still be half shown.
    newest = newest_files(place)
    small = sorted(name for name, found in listed.items() if found.size < below and _ours(name))
    free = [name for name in small if name not in newest]
    groups = []
    for (folder, ending), names in groupby(sorted(free, key=_where), _where):
        groups += [_Group(folder, ending, part) for part in _filled(list(names), listed, below)]
    return groups, len(small) - sum(len(group.names) for group in groups)


def _filled(names: list[str], listed: dict[str, Any], enough: int) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name in names:
        part.append(name)
        size += listed[name].size
        if size >= enough:
            yield part
            part, size = [], 0
    if len(part) > 1:
        yield part


def _alike(place: Place, group: _Group) -> list[_Group]:
    """Part files whose columns differ."""
    with place.fetched(group.names) as paths:
        kinds = [layout(path, group.ending) for path in paths]
    parts = [[n for n, kind in zip(group.names, kinds, strict=True) if kind == one] for one in dict.fromkeys(kinds)]
    return [_Group(group.folder, group.ending, names) for names in parts if len(names) > 1]


def _ours(name: str) -> bool:
    return _OURS.fullmatch(os.path.basename(name)) is not None


def _where(name: str) -> tuple[str, str]:
    return os.path.dirname(name), os.path.splitext(name)[1]
