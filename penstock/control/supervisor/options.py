"""What a job manager is configured with."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from penstock.control.supervisor.capacity import Capacity
from penstock.control.supervisor.data_folder import DataFolder
from penstock.settings import cores


def machine_capacity() -> Capacity:
    """Return the cores and the memory of this machine."""
    return Capacity(float(cores()), int(psutil.virtual_memory().total))


def holder_name() -> str:
    """Return a name for this manager in the lease: who it is, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True)
class Options:
    """Settings of one job manager.

    settings          laid under the settings of every job: the log, Spark's master, connections
    spares            how many drivers with a started Spark wait for a job
    lease_seconds     period of the lease: a standby takes over within two of them
    lost_seconds      a driver that is silent for so long is lost
    stall_seconds     a job without a new epoch for so long, although there is input, is restarted
    check_seconds, check_bytes  limits of the process that builds a plan before a job is accepted
    """

    data: DataFolder
    settings: Mapping[str, Any] = field(default_factory=dict)
    capacity: Capacity = field(default_factory=machine_capacity)
    spares: int = 1
    holder: str = field(default_factory=holder_name)
    lease_seconds: float = 5.0
    lost_seconds: float = 15.0
    stall_seconds: float = 600.0
    check_seconds: float = 30.0
    check_bytes: int = 2 * 1024**3
    sample_seconds: float = 10.0
    autoscale_seconds: float = 30.0
    runs_kept: int = 5
    log_metrics: Callable[[], str] | None = None
