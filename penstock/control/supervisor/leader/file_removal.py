"""Removes the files of deleted jobs: sources, logs and checkpoints, also in object stores. Savepoints are kept.

What cannot be removed, because an object store does not answer or the manager is killed, is tried again.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.drivers.launchers import DriverStart, driver_environment
from penstock.masking import masked, masked_text

_SECONDS = 600.0
_logger = logging.getLogger(__name__)


def remove_files_of_deleted_jobs(data: DataFolder, store: Store) -> None:
    """Remove what deleted jobs have left. Blocks; may run several times at once."""
    for job in store.jobs.deleted():
        if _removed(data, job):
            store.jobs.files_removed(job.id)


def _removed(data: DataFolder, job: Job) -> bool:
    shutil.rmtree(data.versions(job.id), ignore_errors=True)
    for folder in data.runs.glob(f"{job.id}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    checkpoint = job.checkpoint or ""
    if not checkpoint.rstrip("/").endswith(f"/{job.id}"):
        return True  # it is of several jobs, or was never the manager's
    if "://" in checkpoint:
        return _removed_remotely(data, checkpoint)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return True


def _removed_remotely(data: DataFolder, checkpoint: str) -> bool:
    command = [sys.executable, "-m", "penstock.storage.removal", checkpoint]
    environment = driver_environment(DriverStart(data.runs / "removal"))
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        complaint = str(error)
    else:
        complaint = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    if complaint:
        _logger.warning(
            "checkpoint %s of a deleted job is not removed: %s; it is tried again",
            masked(checkpoint),
            masked_text(complaint),
        )
    return not complaint
