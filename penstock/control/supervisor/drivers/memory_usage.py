"""Memory of process trees, read in one pass over all processes: the manager looks every few seconds."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from penstock.control.supervisor.drivers.processes import identify, resident_bytes

# Of the fields after the name in /proc/PID/stat.
_PARENT, _RESIDENT = 1, 21
_PROC = Path("/proc")


def tree_memory(roots: Collection[int]) -> dict[int, int]:
    """Return the resident bytes of each process with all its descendants; 0 for one that does not run."""
    if not roots:
        return {}
    if not _PROC.is_dir():
        found = {pid: identify(pid) for pid in roots}
        return {pid: resident_bytes(one) if one else 0 for pid, one in found.items()}
    return sums_by_root(_processes(), roots)


def sums_by_root(processes: Mapping[int, tuple[int, int]], roots: Collection[int]) -> dict[int, int]:
    """Add up (parent, size) by the nearest of the roots above each process.

    >>> sums_by_root({1: (0, 5), 2: (1, 10), 3: (2, 20), 4: (1, 40)}, [2, 4])
    {2: 30, 4: 40}
    """
    sums = dict.fromkeys(roots, 0)
    for pid, (_, size) in processes.items():
        at, seen = pid, set[int]()
        while at not in sums and at in processes and at not in seen:
            seen.add(at)
            at = processes[at][0]
        if at in sums:
            sums[at] += size
    return sums


def _processes() -> dict[int, tuple[int, int]]:
    page = os.sysconf("SC_PAGE_SIZE")
    found: dict[int, tuple[int, int]] = {}
    for pid in psutil.pids():
        try:
            content = (_PROC / str(pid) / "stat").read_bytes()
        except OSError:
            continue
        fields = content[content.rindex(b")") + 2 :].split()
        found[pid] = (int(fields[_PARENT]), int(fields[_RESIDENT]) * page)
    return found
