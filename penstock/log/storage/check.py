"""A look at a whole data folder that nobody uses: every batch of every segment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import SettingsError
from penstock.log.storage import snapshot
from penstock.log.storage.cleaned import read_cleaned
from penstock.log.storage.epochs import read_epochs
from penstock.log.storage.handles import Handles
from penstock.log.storage.recovery import Examination, Law, examined
from penstock.log.storage.segment import Damage, Segment
from penstock.log.storage.store import lock_folder
from penstock.log.storage.swap import finish_swaps
from penstock.log.storage.topics import Topics


@dataclass
class Checked:
    """What was found; `torn` is what a crash left unfinished, which the next start cuts off."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    size: int = 0
    damages: list[Damage] = field(default_factory=list)
    torn: list[Damage] = field(default_factory=list)


def check_folder(folder: Path) -> Checked:
    """Read everything; refuses a folder that is in use or holds no log."""
    if not (folder / "topics.json").exists():
        message = f"{folder} holds no log"
        raise SettingsError(message, hint="give the folder that `penstock log serve` was started with: --data DIR")
    lock = lock_folder(folder)
    try:
        return _check_topics(folder)
    finally:
        os.close(lock)


def _check_topics(folder: Path) -> Checked:
    topics = Topics(folder / "topics.json")
    checked = Checked(len(topics), sum(topic.partitions for topic in topics.values()))
    for topic in topics.values():
        for index in range(topic.partitions):
            if (folder / f"{topic.name}-{index}").exists():
                _check_partition(folder / f"{topic.name}-{index}", checked)
    return checked


def _check_partition(folder: Path, checked: Checked) -> None:
    finish_swaps(folder)
    epochs = read_epochs(folder)
    law = Law(read_cleaned(folder).gaps, tuple(epochs) if epochs else None)
    segments = [Segment(path, Handles(2, create=False)) for path in sorted(folder.glob("*.log"))]
    for at, segment in enumerate(segments):
        if at + 1 < len(segments):
            segment.closed, segment.end = True, segments[at + 1].base
        _check_segment(segment, law, checked)


def _check_segment(segment: Segment, law: Law, checked: Checked) -> None:
    if not segment.path.exists():
        return
    result = examined(segment, law)
    checked.records += result.records
    checked.size += segment.size
    checked.damages += result.damages
    if not segment.closed:
        _check_tail(segment, result, checked)


def _check_tail(segment: Segment, result: Examination, checked: Checked) -> None:
    saved = max(
        (each for each in snapshot.load(segment.path.parent) if each.segment == segment.base), key=_size, default=None
    )
    torn = segment.size - result.position
    if saved is not None and saved.size > result.position:
        # That was on disk when the snapshot was taken, so no crash has torn it.
        checked.damages.append(Damage(segment.path, result.position, torn, result.end, saved.end))
    elif torn:
        checked.torn.append(Damage(segment.path, result.position, torn, result.end, result.end))


def _size(saved: snapshot.Snapshot) -> int:
    return saved.size
