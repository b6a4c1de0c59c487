"""The Python files of jobs in a driver: on its path while their job runs, forgotten when it has ended.

A driver of one job is as `penstock run`. In a pool several jobs share one interpreter, so two of them cannot have
different modules of the same name.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.driver.assignment import Assignment
from penstock.entry_points import load_entry
from penstock.errors import BadEntry
from penstock.pipeline import Pipeline

PATH = "PYTHONPATH"


class UserCode:
    """The folders of the jobs that run."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}

    def load(self, assignment: Assignment) -> Pipeline:
        """Import the job's file and return its pipeline."""
        folder = Path(assignment.target).resolve().parent
        self._refuse_same_names(folder, Path(assignment.target).stem)
        self._folders[assignment.job] = folder
        return load_entry(assignment.entry_point, assignment.sets)

    def forget(self, assignment: Assignment) -> None:
        """Remove the job's folder from the path, and its modules, so that its next version is imported afresh."""
        folder = self._folders.pop(assignment.job, None)
        if folder is None or folder in self._folders.values():
            return
        sys.path[:] = [path for path in sys.path if path != str(folder)]
        kept = [path for path in os.environ.get(PATH, "").split(os.pathsep) if path and path != str(folder)]
        os.environ[PATH] = os.pathsep.join(kept)
        for name, module in [*sys.modules.items()]:
            if _is_in(getattr(module, "__file__", None), folder):
                del sys.modules[name]

    def _refuse_same_names(self, folder: Path, entry: str) -> None:
        mine = _module_names(folder) - {entry}
        for other in {*self._folders.values()} - {folder}:
            if both := sorted(mine & _module_names(other) & {name.partition(".")[0] for name in sys.modules}):
                message = f"another job of the pool has a module of the same name: {', '.join(both)}"
                raise BadEntry(message, hint="rename it, or run the job outside of the pool")


def has_neighbours(assignment: Assignment) -> bool:
    """Say whether there is something to import beside the job's file: workers need the path to find it too."""
    target = Path(assignment.target).resolve()
    others = (one for one in target.parent.iterdir() if one != target and not one.name.startswith((".", "__pycache__")))
    return any(one.is_dir() or one.suffix in (".py", ".so", ".zip") for one in others)


def _module_names(folder: Path) -> set[str]:
    """Return what can be imported from a folder."""
    try:
        found = [*folder.iterdir()]
    except OSError:
        return set()
    return {one.stem for one in found if one.suffix == ".py" or (one.is_dir() and (one / "__init__.py").exists())}


def _is_in(file: str | None, folder: Path) -> bool:
    return file is not None and Path(file).is_relative_to(folder)
