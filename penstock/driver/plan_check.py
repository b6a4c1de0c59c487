"""`python -m penstock.driver.plan_check ASSIGNMENT`: build a job's plan without Spark, within limits, and print it.

The result is one JSON object on standard output: `{"ok": true, "pipeline": NAME, "plan": {...}, "explain": TEXT,
"changes": {"changed", "summary", "table", "lost"} or null}`, where `changes` compares with the job's checkpoint; or
`{"ok": false, "error": {...}, "text": TEXT}` with what `penstock explain` prints. What the user's code prints goes to
standard error. The caller passes a clean environment, and kills the process when it takes too long.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.process_limits import limit_process

if TYPE_CHECKING:
    from penstock.driver.assignment import Assignment
    from penstock.pipeline import Pipeline
    from penstock.plan.physical.plan import PhysicalPlan

CPU_SECONDS = 30
# Whoever started this ends it earlier, unless it was killed itself.
WALL_SECONDS = 120
MEMORY_BYTES = 2 * 1024**3
FILE_BYTES = 16 * 1024**2


def main(arguments: Sequence[str]) -> int:
    """Check the plan of the assignment in a file; return the exit code of `penstock explain`."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    limit_process(cpu_seconds=CPU_SECONDS, memory_bytes=MEMORY_BYTES, file_bytes=FILE_BYTES)
    signal.alarm(WALL_SECONDS)
    result = check(Path(arguments[0]))
    json.dump(result, answer)
    answer.flush()
    return 0 if result["ok"] else int(result["error"]["exit_code"])


def check(path: Path) -> dict[str, Any]:
    """Return the plan of the assignment in a file, or its error."""
    try:
        return _plan(path)
    except MemoryError:
        return _failed(_too_large(), path)
    except Exception as error:  # the user's code may raise anything
        return _failed(error, path)


def _plan(path: Path) -> dict[str, Any]:
    # Imported within the limits, so that a folder on the path cannot escape them.
    from penstock.driver.assignment import read_assignment_file
    from penstock.entry_points import load_entry
    from penstock.errors import MissingInput
    from penstock.plan.physical.explain import explain
    from penstock.plan.physical.plan import masked_texts
    from penstock.settings import Settings

    assignment = read_assignment_file(path)
    if assignment is None:
        message = f"file not found: {path}"
        raise MissingInput(message)
    settings = Settings.load(**assignment.settings)
    pipeline = load_entry(assignment.entry_point, assignment.sets)
    plan = masked_texts(pipeline.physical_plan(settings))
    shown = {
        "plan": json.loads(plan.to_json()),
        "explain": explain(plan),
        "changes": _changes(assignment, pipeline, plan),
    }
    return {"ok": True, "pipeline": pipeline.name, **shown}


def _changes(assignment: Assignment, pipeline: Pipeline, plan: PhysicalPlan) -> dict[str, Any] | None:
    """Return what becomes of the state in the job's checkpoint; None if it has none yet, or it is not on this disk."""
    from penstock.plan.changes import compare
    from penstock.spark.checkpoints.identity import data_folder, new_identity, read_identity
    from penstock.storage.folders import folder

    root = folder(assignment.checkpoint)
    found = read_identity(data_folder(root)) if root.local is not None else None
    if found is None or not found.plan:
        return None
    changes = compare(found.version.nodes, new_identity(plan, pipeline.graph).version.nodes)
    lost = [name for name in changes.of("lost") if name not in assignment.allow_drop]
    return {"changed": bool(changes), "summary": changes.summary, "table": changes.table, "lost": lost}


def _failed(error: Exception, path: Path) -> dict[str, Any]:
    from penstock.driver.messages import describe_error

    described = describe_error(error)
    for part in ("message", "hint"):
        described[part] = _as_in_its_folder(described[part], path) if described[part] else None
    hint = f"\n  {described['hint']}" if described["hint"] else ""
    return {"ok": False, "error": described, "text": f"{described['type']}: {described['message']}{hint}"}


def _as_in_its_folder(text: str, path: Path) -> str:
    """Return a text of `penstock explain` as it is in the folder of the file, not in that of the manager."""
    from penstock.driver.assignment import read_assignment_file
    from penstock.errors import PenstockError

    try:
        assignment = read_assignment_file(path)
    except PenstockError:
        return text
    if assignment is None:
        return text
    folder = Path(assignment.target).parent
    for known in {str(folder), str(folder.resolve())} - {"/", "."}:
        text = text.replace(f"{known}/", "").replace(known, ".")
    return text


def _too_large() -> Exception:
    from penstock.errors import BadEntry

    message = f"building the plan took more than {MEMORY_BYTES // 1024**3} GiB of memory"
    return BadEntry(message, hint="an entry file only builds pipelines; load data in a source or a function")


if __name__ == "__main__":
    sys.stdout.flush()
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
