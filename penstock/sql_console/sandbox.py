"""DuckDB for what users write: no files, no network, no settings, and not more than so much memory."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

MEMORY = "512MB"
ADDRESS_BYTES = 3 * 1024**3
_CPU_SECONDS = 60
# Only standard error is a file.
_FILE_BYTES = 100_000
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "memory_limit": MEMORY,
    "threads": "1",
    "temp_directory": "",
}
# Each thread of these libraries reserves memory.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS")


def set_limits(seconds: float) -> None:
    """Limit the time, processor time and memory of this process, and the size of files."""
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    most = min(_CPU_SECONDS, int(seconds) + 5)
    limits = {
        resource.RLIMIT_CPU: most,
        resource.RLIMIT_AS: ADDRESS_BYTES,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))
    # Nothing handles it, so that it ends the process, wherever that is.
    signal.setitimer(signal.ITIMER_REAL, seconds)


def connect() -> Any:
    """Return a connection of the same settings as in the native lane, which nothing can change any more."""
    import duckdb

    made = duckdb.connect(":memory:", config=_CLOSED)
    made.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
    made.execute("SET ieee_floating_point_ops = false; SET error_on_division_by_zero = true")
    made.execute("SET python_enable_replacements = false; SET lock_configuration = true")
    return made
