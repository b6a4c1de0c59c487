"""Looks a job's state up, in a process of its own: reading it takes libraries that the manager does without."""

from __future__ import annotations

import json
import subprocess
import sys

from penstock.control.api.state import StateQuery, StateTable
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.drivers.launchers import DriverStart, driver_environment
from penstock.errors import CheckpointMissing, RunError

_SECONDS = 60.0


def look_up(data: DataFolder, checkpoint: str, query: StateQuery) -> StateTable:
    """Return rows of the state in a checkpoint, as `penstock state --json` prints them."""
    options = {"--node": query.node, "--key": query.key, "--at": query.epoch, "--limit": query.limit}
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    command = [sys.executable, "-m", "penstock.cli", "state", *given, "--json", "--", checkpoint]
    environment = driver_environment(DriverStart(data.runs / "state"))
    try:
        done = subprocess.run(
            command, cwd=data.path, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"the state was not read within {_SECONDS:g} s"
        raise RunError(message, hint="ask for one key, or read it with penstock state", transient=True) from None
    if done.returncode != 0:
        text = done.stderr.strip() or f"penstock state ended with code {done.returncode}"
        kind, _, message = text.partition(": ")
        raise CheckpointMissing(message.partition("\n")[0] or kind, hint=message.partition("\n")[2].strip() or None)
    return StateTable(**json.loads(done.stdout))
