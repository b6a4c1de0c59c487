"""DuckDB for what users write: no files, no network, no settings, and not more than so much memory."""

from __future__ import annotations

import signal
from typing import Any

from penstock.process_limits import limit_process

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


def set_limits(seconds: float) -> None:
    """Limit the time, processor time and memory of this process, and the size of files."""
    cpu_seconds = min(_CPU_SECONDS, int(seconds) + 5)
    limit_process(cpu_seconds=cpu_seconds, memory_bytes=ADDRESS_BYTES, file_bytes=_FILE_BYTES)
    # Nothing handles it, so that it ends the process, wherever that is.
    signal.setitimer(signal.ITIMER_REAL, seconds)


def connect() -> Any:
    """Return a connection of the same settings as in the native lane, which nothing can change any more."""
    import duckdb

    from penstock.native.engine import SESSION

    made = duckdb.connect(":memory:", config=_CLOSED)
    made.execute(SESSION)
    made.execute("SET python_enable_replacements = false; SET lock_configuration = true")
    return made
