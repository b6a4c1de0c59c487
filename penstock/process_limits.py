"""Limits of a process that runs what users write; it loads nothing of ours, for they are set first."""

from __future__ import annotations

import os
import resource

# Each thread of these libraries reserves memory, and such a process needs none of them.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS")


def limit_process(*, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
    """Limit the processor time, memory and file size of this process and its children; libraries get one thread."""
    for name in _THREADS:
        os.environ[name] = "1"
    limits = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))
