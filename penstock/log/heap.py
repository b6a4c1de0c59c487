"""What the process holds: of the system, and in the C library's heap. Freed memory is returned to the system.

The C library keeps what is freed for later: after one burst of large requests the process would stay as large as it was
then. Every few seconds what is free is looked at, and given back if it is much.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FREE_BYTES = 8 << 20  # below this it is not worth the walk over the heap
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


class Heap(NamedTuple):
    """Bytes that are allocated, and bytes that were freed and are kept."""

    used: int
    free: int


@cache
def _library() -> Any:
    """Return the C library if it is glibc, new enough to say what it holds; else None, and nothing is done."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _MallInfo
        library.mallinfo2.argtypes = ()
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError):
        return None
    return library


def keep_small() -> None:
    """Let large buffers come from the system and return there at once, and all threads share one heap.

    To be called before there are threads. The C library returns only what is free at the end of the first heap, and
    would make one heap for each thread and let larger and larger buffers into them.
    """
    library = _library()
    if library is not None:
        for option, value in _OPTIONS.items():
            library.mallopt(option, value)


def heap() -> Heap | None:
    """Return what the C library holds; None where it does not say."""
    library = _library()
    if library is None:
        return None
    info = library.mallinfo2()
    return Heap(info.uordblks + info.hblkhd, info.fordblks)


def resident() -> int | None:
    """Return the bytes of memory that the process has; None where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None


def give_back() -> bool:
    """Return freed memory to the system, if there is much of it; say whether that was done."""
    held = heap()
    if held is None or held.free < _FREE_BYTES:
        return False
    return bool(_library().malloc_trim(0))
