"""Assignments: what a driver gets to run a job, made of the job, its version and the manager's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.control.machine.instructions import Launch
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.versions import Version
from penstock.control.supervisor.capacity import DEFAULT_CORES, GIB, Share
from penstock.control.supervisor.data_folder import DataFolder
from penstock.control.supervisor.drivers.driver import Group
from penstock.errors import BadValue, PenstockError, SettingsError
from penstock.masking import masked_options, masked_text
from penstock.settings import Settings, cores
from penstock.storage.durable_files import replace_file

ASSIGNMENT = "assignment.json"
_EXECUTOR_CORES = "spark.executor.cores"
_HEAP = "spark.driver.memory"
_MIB = 1024**2
# Reserved for a job that names no memory. It is not limited to it: most jobs need less, and few need more.
_RESERVED = 3 * GIB // 2
# Jobs of a pool share a JVM.
_RESERVED_IN_POOL = GIB // 4
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": GIB, "t": 1024 * GIB}


@dataclass(frozen=True)
class Assigned:
    """An assignment without secrets, the secrets beside it, and the kind of driver that can run it."""

    content: dict[str, Any]
    group: Group
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def message(self) -> dict[str, Any]:
        """The `run` message for a driver that is running: secrets go this way, and not to disk."""
        return {"type": "run", **self.content, "environment": dict(self.environment)}


def memory_bytes(text: str) -> int:
    """Read an amount of memory.

    >>> memory_bytes("2g"), memory_bytes("512 MiB")
    (2147483648, 536870912)
    """
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if size < 256 * _MIB:
        message = f"memory = {text!r} is not an amount of memory from 256m"
        raise BadValue(message, node="memory", hint="write for example 512m or 2g")
    return size


def share(job: StoredJob) -> Share:
    """Return what a job reserves of the machine."""
    usual = _RESERVED if job.pool is None else _RESERVED_IN_POOL
    memory = memory_bytes(job.memory) if job.memory else usual
    return Share(job.cores or DEFAULT_CORES, memory)


def memory_limit(job: StoredJob, machine: int) -> int:
    """Return above how much memory a job is killed: its own limit, or half of the machine."""
    return memory_bytes(job.memory) if job.memory else machine // 2


def job_settings(
    base: Mapping[str, Any], own: Mapping[str, Any], memory: str | None, parallelism: int | None
) -> dict[str, Any]:
    """Lay a job's settings over the manager's; the heap of its JVM follows from its memory."""
    merged: dict[str, Any] = dict(base)
    for name, value in own.items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    if parallelism is not None:
        merged["parallelism"] = parallelism
        if merged.get("state") == "rocksdb":
            merged.setdefault("state_partitions", parallelism)
    heap = memory_bytes(memory) * 6 // 10 if memory else GIB
    given = _options(merged.get("spark"))
    tasks = _positive(merged.get("parallelism"), cores())
    on_cluster = cluster_options(str(merged.get("spark_master") or ""), tasks, given)
    merged["spark"] = {_HEAP: f"{heap // _MIB}m", **on_cluster, **given}
    return merged


def cluster_options(master: str, parallelism: int, given: Mapping[str, Any]) -> dict[str, str]:
    """Return how many executors a job has on a cluster: as many cores as its parallelism, and no more.

    Without it an application takes all cores of a standalone cluster, and two executors on Kubernetes.

    >>> cluster_options("spark://a:7077", 4, {}), cluster_options("local[2]", 4, {})
    ({'spark.cores.max': '4'}, {})
    """
    if master.startswith("spark://"):
        return {"spark.cores.max": str(parallelism)}
    if not master.startswith("k8s://"):
        return {}
    per_executor = _positive(given.get(_EXECUTOR_CORES), 1)
    # The driver is a process here, whatever the cluster would like.
    return {
        "spark.submit.deployMode": "client",
        _EXECUTOR_CORES: str(per_executor),
        "spark.executor.instances": str(-(-parallelism // per_executor)),
    }


def _positive(value: Any, otherwise: int) -> int:
    """Read a number that a user has set; the driver reports what is wrong with it."""
    text = str(value)
    return int(text) if text.isdecimal() and int(text) > 0 else otherwise


def _options(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def session_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Spark's session depends on: all that a driver without a job needs to know.

    It is on the command line, where everyone can read it, so an option with a secret is an error.
    """
    kept = {name: settings[name] for name in ("spark_master", "parallelism", "state", "spark") if name in settings}
    spark = _options(kept.get("spark"))
    if masked_options(spark) != spark or any(masked_text(str(value)) != str(value) for value in spark.values()):
        message = "Spark's configuration has secrets, which a driver without a job must not be started with"
        raise SettingsError(message, node="settings", hint="run the job outside of a pool")
    return kept


def group_of(settings: Mapping[str, Any], pool: str | None = None) -> Group:
    """Return which drivers a job with these settings can use: those with the same master and Spark configuration."""
    try:
        read = Settings(**settings)
        spark = json.dumps([read.master, sorted(read.spark.items())])
    except (PenstockError, TypeError):
        # The driver reports what is wrong with them.
        spark = json.dumps(settings, sort_keys=True, default=str)
    return Group(spark, pool)


def assign(
    job: StoredJob,
    version: Version,
    launch: Launch,
    data: DataFolder,
    base: Mapping[str, Any],
    token: int,
    environment: Mapping[str, str],
) -> Assigned:
    """Return the assignment of a run."""
    settings = job_settings(base, version.settings, job.memory, launch.parallelism)
    file, _, entry = version.entry.partition(":")
    content = {
        "job": job.id,
        "name": job.name,
        "attempt": launch.attempt,
        "target": str(data.version(job.id, version.number).resolve() / file),
        "entry": entry or None,
        "arguments": version.arguments,
        "until": job.until or "stopped",
        "settings": settings,
        "checkpoint": job.checkpoint or data.checkpoint(job.id),
        "savepoints": data.job_savepoints(job.id),
        "token": token,
        "restore_from": launch.restore_from,
        "allow_drop": job.labels.get(allowed_label(version.number), "").split(),
        "pool": job.pool,
    }
    return Assigned(content, group_of(settings, job.pool), environment)


def allowed_label(version: int) -> str:
    """Return the label of a job with the nodes whose state a version may lose."""
    return f"penstock.allow_drop.{version}"


def write_assignment(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the assignment where a new driver reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / ASSIGNMENT, json.dumps(content, indent=1).encode(), mode=0o600)
