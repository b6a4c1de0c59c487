"""A job whose first life is a process that is killed, and whose next is in this process, on the session of all tests.

That a driver goes on where a dead one was needs one JVM to kill; the next one need not be a new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from penstock.entry_points import load_entry
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.spark.runs.runner import Runner
from tests.crash.driver import POLL_SECONDS, Driver


class LastLifeHere(Driver):
    """The same as a driver whose every life is a process, for a job that is given by `penstock run`."""

    def __init__(
        self, shared: Settings, command: Sequence[str], env: Mapping[str, str], folder: Path, deadline: float
    ) -> None:
        super().__init__(command, env, folder, deadline)
        self._shared = shared
        self._run: Runner | None = None
        self._ended: int | None = None
        self._ends = ExitStack()

    def start(self, faults: Mapping[str, Any] | None = None) -> None:
        if self.lives == 0:
            super().start(faults)
            return
        assert self._run is None, f"the job has ended once more: {self.said}"
        self.lives += 1
        self._output.touch()
        self._ends.enter_context(patch.dict(os.environ, self.env))
        sets = [part.removeprefix("--set=") for part in self.command if part.startswith("--set=")]
        options = dict(zip(self.command, self.command[1:], strict=False))
        settings = replace(Settings.load(), spark=self._shared.spark, spark_master=self._shared.master)
        pipeline = load_entry(options["run"], sets)
        assert options["--until"] == "ended"
        self._run = pipeline.start(until="ended", checkpoint=options["--checkpoint"], settings=settings)

    @property
    def pid(self) -> int:
        return super().pid if self._run is None else os.getpid()

    @property
    def code(self) -> int | None:
        if self._run is not None and self._ended is None:
            try:
                self._ended = 0 if self._run.wait(POLL_SECONDS) else None
            except PenstockError as error:
                self._output.write_text(str(error))
                self._ended = 1
        return super().code if self._run is None else self._ended

    def end(self) -> None:
        if self._run is None:
            super().end()
        elif self.runs:
            self._run.abort()
            with suppress(PenstockError):
                self._run.wait()
        self._ends.close()
