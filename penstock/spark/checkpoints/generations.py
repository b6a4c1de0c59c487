"""Generations of a checkpoint: a changed plan runs on a copy, and the file `current` says which one counts.

The old generation stays as it was until the new one is whole; a crash in between leaves a half that the next start
removes. One generation back is kept, for whoever has to look at it; older ones go.
"""

from __future__ import annotations

from penstock.errors import CheckpointDamaged
from penstock.folders import Folder

CURRENT = "current"
_ALL = "generations"
_FIRST = 1
# In a generation: it was the current one.
COUNTED = "counted"
# What is migrated, not copied, and what was of no use.
_NOT_NOTES = ("queries/", "set-aside/", COUNTED)


def generation(root: Folder) -> int:
    """Return the number of the current generation; the first one is the root itself."""
    content = (root.read(CURRENT) or b"").strip()
    if not content:
        return _FIRST
    if content.isdigit() and (root / _ALL / content.decode()).names():
        return int(content)
    there = [name for name in (root / _ALL).names() if COUNTED in (root / _ALL / name).names()]
    message = f"{root}/{CURRENT} holds {content[:40]!r}, which is not a generation of this checkpoint"
    newest = max(there, key=int, default=None)
    hint = f"write {newest} into it, and run again" if newest else "remove it, and run again"
    raise CheckpointDamaged(message, hint=hint)


def begin_generation(root: Folder, old: Folder) -> Folder:
    """Return the folder of the next generation, with all that the current one has noted, but no queries."""
    number = str(generation(root) + 1)
    new = root / _ALL / number
    (root / _ALL).remove(number)
    for name in old.files():
        content = None if _stays(name) or name.startswith(_NOT_NOTES) else old.read(name)
        if content is not None:
            new.write(name, content)
    return new


def make_current(root: Folder) -> int:
    """Let the next generation count, now that it is whole, and drop those before the last; return its number."""
    number = generation(root) + 1
    root.write(CURRENT, str(number).encode())
    drop_leftovers(root)
    return number


def drop_leftovers(root: Folder) -> None:
    """Remove generations that a crash left half made, and those before the last."""
    number = generation(root)
    for name in (root / _ALL).names():
        if name not in (str(number), str(number - 1)):
            _refuse_to_lose(root, number, name)
            (root / _ALL).remove(name)
    if number > _FIRST and COUNTED not in (root / _ALL / str(number)).names():
        (root / _ALL / str(number)).write(COUNTED, b"")
    if number > _FIRST + 1:
        for name in root.names():
            if not _stays(name):
                root.remove(name)


def _refuse_to_lose(root: Folder, number: int, name: str) -> None:
    """Raise if a generation that is to go has counted after the one that counts: `current` is not what it was."""
    if name.isdigit() and int(name) > number and COUNTED in (root / _ALL / name).names():
        message = f"{root}/{CURRENT} is lost or old: generation {name} has run, and it names generation {number}"
        raise CheckpointDamaged(message, hint=f"write {name} into {root}/{CURRENT}, and run again")


def _stays(name: str) -> bool:
    """Say whether it belongs to the checkpoint, whatever its generation."""
    return name == CURRENT or name.startswith((_ALL, "lease", "."))
