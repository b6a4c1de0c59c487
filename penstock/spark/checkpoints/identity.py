"""Which pipeline a checkpoint belongs to, and which of its generations is current.

`penstock.json` names the pipeline, its lineage and the fingerprints of its plan.

A changed plan runs on a copy, the next generation; the file `current` has the number of the one in use. The old
generation stays unchanged until the new one is complete; if the process crashes in between, the next start removes the
incomplete copy. The previous generation is retained for inspection, older ones are deleted.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.errors import CheckpointDamaged
from penstock.plan.changes import by_ids
from penstock.plan.fingerprint import Described, described, fingerprints, skeleton
from penstock.plan.graph import Graph
from penstock.plan.physical.plan import PhysicalPlan
from penstock.storage.folders import Folder
from penstock.windows import FIRST_US

FORMAT = 2
IDENTITY = "penstock.json"
CURRENT = "current"
# In a migrated generation: the highest epoch that each query has ever had.
HIGHEST_EPOCHS = "reached"
# In the folder of a generation: it has been the current one.
ACTIVATED = "counted"
_GENERATIONS = "generations"
_FIRST = 1
# Queries and their keyed state are migrated, not copied; a new generation needs nothing of the others.
_NOT_COPIED = ("queries/", "keyed/", "set-aside/", ACTIVATED)


@dataclass(frozen=True)
class PlanVersion:
    """A plan as its checkpoint describes it: its nodes, the lane of each event time, and its fingerprint."""

    pipeline: str
    nodes: dict[str, Described]
    times: dict[str, str]
    skeleton: str


@dataclass(frozen=True)
class Identity:
    """What `penstock.json` holds."""

    format: int
    pipeline: str
    lineage: str
    skeleton: str
    nodes: dict[str, str]
    times: dict[str, str]
    plan: dict[str, dict[str, Any]] = field(default_factory=dict)
    # The time that is zero in Spark; in checkpoints without this field it is 1970.
    first_us: int = 0
    # How many buckets of keys its state has, for good: a key is found by it. Checkpoints without this field have 16.
    buckets: int = 16
    # Whether they are spread evenly over Spark's tasks; in checkpoints without this field they are numbered from 0.
    even_buckets: bool = False

    @property
    def version(self) -> PlanVersion:
        """The plan, to be compared with another version of it."""
        nodes = by_ids({name: Described(**node) for name, node in self.plan.items()})
        return PlanVersion(self.pipeline, nodes, self.times, self.skeleton)


def new_identity(plan: PhysicalPlan, graph: Graph) -> Identity:
    """Return the identity of a new checkpoint of a pipeline."""
    times: dict[str, str] = {node.id: node.lane for node in plan.event_times}
    nodes = {name: asdict(node) for name, node in described(graph).items()}
    lineage = uuid.uuid4().hex[:12]
    found = skeleton(graph), fingerprints(graph), times, nodes
    return Identity(FORMAT, plan.pipeline, lineage, *found, FIRST_US, plan.buckets, even_buckets=True)


def read_identity(data: Folder) -> Identity | None:
    """Return the identity of a checkpoint, or None if the folder has none yet."""
    found = data.read(IDENTITY)
    if found is None:
        return None
    try:
        return Identity(**json.loads(found))
    except (ValueError, TypeError) as error:
        message = f"{data}/{IDENTITY} cannot be read: {error}"
        raise CheckpointDamaged(message, hint="restore it from a copy, or start a new checkpoint") from error


def write_identity(data: Folder, identity: Identity) -> None:
    """Write the identity: with it the folder is a checkpoint."""
    data.write(IDENTITY, json.dumps(asdict(identity), indent=2).encode())


def data_folder(root: Folder) -> Folder:
    """Return the folder that holds a checkpoint's data: its root, or its current generation."""
    number = current_generation(root)
    return root / _GENERATIONS / str(number) if number > _FIRST else root


def current_generation(root: Folder) -> int:
    """Return the number of the current generation; the first one is the root itself."""
    content = (root.read(CURRENT) or b"").strip()
    activated = [name for name in (root / _GENERATIONS).names() if name.isdigit() and _was_activated(root, name)]
    if not content or (content.isdigit() and (root / _GENERATIONS / content.decode()).names()):
        number = int(content or _FIRST)
        _refuse_older(root, number, activated)
        return number
    message = f"{root}/{CURRENT} holds {content[:40]!r}, which is not a generation of this checkpoint"
    newest = max(activated, key=int, default=None)
    hint = f"write {newest} into it, and run again" if newest else "remove it, and run again"
    raise CheckpointDamaged(message, hint=hint)


def create_generation(root: Folder, old: Folder) -> Folder:
    """Return the folder of the next generation: a copy of the current one without its queries."""
    number = str(current_generation(root) + 1)
    new = root / _GENERATIONS / number
    (root / _GENERATIONS).remove(number)
    for name in old.files():
        content = None if _is_shared(name) or name.startswith(_NOT_COPIED) else old.read(name)
        if content is not None:
            new.write(name, content)
    return new


def activate_generation(root: Folder) -> int:
    """Make the next generation, which is complete, the current one; return its number."""
    number = current_generation(root) + 1
    root.write(CURRENT, str(number).encode())
    delete_old_generations(root)
    return number


def delete_old_generations(root: Folder) -> None:
    """Delete incomplete generations that a crash left, and all but the current and the previous one."""
    number = current_generation(root)
    for name in (root / _GENERATIONS).names():
        if name not in (str(number), str(number - 1)):
            (root / _GENERATIONS).remove(name)
    if number > _FIRST and not _was_activated(root, str(number)):
        (root / _GENERATIONS / str(number)).write(ACTIVATED, b"")
    if number > _FIRST + 1:
        for name in root.names():
            if not _is_shared(name):
                root.remove(name)


def _refuse_older(root: Folder, number: int, activated: list[str]) -> None:
    """Raise if a generation was activated after this one: then `current` is lost or old."""
    newest = max(map(int, activated), default=number)
    if newest > number:
        message = f"{root}/{CURRENT} is lost or old: generation {newest} has run, and it names generation {number}"
        raise CheckpointDamaged(message, hint=f"write {newest} into {root}/{CURRENT}, and run again")


def _was_activated(root: Folder, name: str) -> bool:
    return ACTIVATED in (root / _GENERATIONS / name).names()


def _is_shared(name: str) -> bool:
    """Return whether a file of the root belongs to all generations."""
    return name == CURRENT or name.startswith((_GENERATIONS, "lease", "."))
