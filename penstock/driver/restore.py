"""Restores a savepoint into the checkpoint of a job before it starts: once, however often the start is repeated."""

from __future__ import annotations

import json

from penstock.driver.assignment import Assignment
from penstock.spark.checkpoints.lease import lease_on
from penstock.spark.checkpoints.savepoints import find_savepoint, restore_savepoint
from penstock.storage.folders import Folder, folder

# In the root of the checkpoint: the restore that it came from.
MARKER = "restored.json"


def restore_once(assignment: Assignment, pipeline: str, savepoints: Folder) -> str | None:
    """Replace the checkpoint by the savepoint that the assignment names; return what was done, None if nothing.

    After a crash the same assignment may come again, when epochs have been committed since: restoring once more would
    write their rows twice.
    """
    if assignment.restore_from is None:
        return None
    root = folder(assignment.checkpoint)
    wanted = assignment.restore_id or assignment.restore_from
    if _restored(root) == wanted:
        return None
    where = find_savepoint(assignment.restore_from, savepoints, folder(assignment.restore_from))
    lease = lease_on(root)
    lease.take(pipeline, assignment.token)
    try:
        identity = restore_savepoint(where, root, pipeline, replaces=True)
        root.write(MARKER, json.dumps({"restore": wanted, "lineage": identity.lineage}).encode())
    finally:
        lease.release()
    return f"restored from savepoint {where}, as lineage {identity.lineage}"


def _restored(root: Folder) -> str | None:
    try:
        found = json.loads(root.read(MARKER) or b"{}")
    except ValueError:
        return None
    return found.get("restore") if isinstance(found, dict) else None
