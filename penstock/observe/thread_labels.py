"""For which job a thread works. A driver of a pool runs several jobs, and labels what each of them prints."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_local = threading.local()


def current_label() -> str | None:
    """Return the job of this thread; None if it works for none, or for all."""
    found: str | None = getattr(_local, "label", None)
    return found


@contextmanager
def labelled(job: str | None) -> Iterator[None]:
    """Let this thread work for a job.

    >>> with labelled("j1"):
    ...     current_label()
    'j1'
    """
    before, _local.label = current_label(), job
    try:
        yield
    finally:
        _local.label = before
