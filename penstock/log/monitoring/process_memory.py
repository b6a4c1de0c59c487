"""The memory of the process and its heap; returns freed memory to the system.

The C library keeps freed memory for later: after a burst of large requests the process would stay as large as it was
then. Every few seconds the heap is trimmed if much of it is free.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FREE_BYTES = 8 << 20  # below this, trimming is not worth its time
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of <malloc.h>
_OPTIONS = {-8: 1, -3: 2 << 20, -1: 16 << 20}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


class HeapUsage(NamedTuple):
    """Allocated bytes, and freed bytes that were not returned to the system."""

    used: int
    free: int


@cache
def _library() -> Any:
    """Return the C library if it is a glibc with mallinfo2; else None, and nothing is done."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _MallInfo
        library.mallinfo2.argtypes = ()
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError):
        return None
    return library


def limit_heap_growth() -> None:
    """Allocate large buffers with mmap, and let all threads share one heap.

    Call it before starting threads. The C library returns only free memory at the end of the first heap, and would make
    one heap per thread and put larger and larger buffers into them.
    """
    library = _library()
    if library is not None:
        for option, value in _OPTIONS.items():
            library.mallopt(option, value)


def heap_usage() -> HeapUsage | None:
    """Return the heap usage; None if it is not available."""
    library = _library()
    if library is None:
        return None
    info = library.mallinfo2()
    return HeapUsage(info.uordblks + info.hblkhd, info.fordblks)


def resident_bytes() -> int | None:
    """Return the resident memory of the process; None if it is not available."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None


def trim_heap() -> bool:
    """Return freed memory to the system if there is much of it; return whether that was done."""
    held = heap_usage()
    if held is None or held.free < _FREE_BYTES:
        return False
    return bool(_library().malloc_trim(0))
