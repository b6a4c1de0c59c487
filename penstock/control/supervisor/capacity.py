"""Cores and memory of the machine, and whether one more job fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GIB = 1024**3
# What a small job takes: Spark's JVM with its default heap of 1 GiB, the driver and a few Python workers.
DEFAULT_MEMORY = 2 * GIB
DEFAULT_CORES = 1.0


@dataclass(frozen=True)
class Share:
    """What a job may use. Memory is a limit: a job above it is killed. Cores are its share of the machine's."""

    cores: float = DEFAULT_CORES
    memory: int = DEFAULT_MEMORY

    def __add__(self, other: Share) -> Share:
        return Share(self.cores + other.cores, self.memory + other.memory)


NOTHING = Share(0.0, 0)


@dataclass(frozen=True)
class Capacity:
    """What all jobs together may use.

    Cores can be shared, so several times as many may be promised (`overcommit`): streaming jobs mostly wait.
    """

    cores: float
    memory: int
    overcommit: float = 8.0

    def refusal(self, wanted: Share, used: Iterable[Share]) -> str | None:
        """Return why a job does not fit beside those that run; None if it fits.

        >>> Capacity(2, 4 * GIB, overcommit=1).refusal(Share(1, 2 * GIB), [Share(1, 3 * GIB)])
        'needs 2.0 GiB of memory, and 1.0 of 4.0 GiB are free'
        """
        taken = sum(used, NOTHING)
        free = self.memory - taken.memory
        if wanted.memory > free:
            left = f"{_gib(max(free, 0))} of {_gib(self.memory)} GiB are free"
            return f"needs {_gib(wanted.memory)} GiB of memory, and {left}"
        promised = self.cores * self.overcommit
        if wanted.cores > promised - taken.cores:
            return f"needs {wanted.cores:g} cores, and {max(promised - taken.cores, 0):g} of {promised:g} are free"
        return None


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
