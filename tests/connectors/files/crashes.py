"""A process that is killed, in the process of the test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

_STEPS = ("replace", "fsync", "remove", "sendfile")


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def crash_after(calls: int) -> Iterator[None]:
    """Let so many calls that change the disk through, and end with the next one."""
    left = iter(range(calls))

    def counted(really):
        def call(*args, **options):
            if next(left, None) is None:
                raise Killed
            return really(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        for name in _STEPS:
            patch.setattr(os, name, counted(getattr(os, name)))
        yield
