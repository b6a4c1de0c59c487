"""The lease of a checkpoint under kill -9: the next driver has it only when the JVM of the one before is gone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests.cluster.standalone import wait_for


def outlived_by(jvms: Iterable[psutil.Process], checkpoint: Path, following: int) -> bool:
    """Wait until the next driver has the lease; return whether a JVM of the one before runs then."""
    wait_for(lambda: _holder(checkpoint) == following, "the next driver never got the lease")
    # Its lock goes while the process ends, so it may be listed a moment longer.
    return any(map(_lives, psutil.wait_procs([*jvms], timeout=5)[1]))


def _holder(checkpoint: Path) -> int | None:
    try:
        pid: int = json.loads((checkpoint / "lease").read_bytes())["pid"]
    except (FileNotFoundError, ValueError):
        return None
    return pid


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
