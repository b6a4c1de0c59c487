"""The life cycle of a run, whatever way Spark runs it: started, watched by a thread, halted, its checkpoint closed."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from typing import Literal, Self

from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError
from penstock.plan.graph import Graph
from penstock.report import Progress, Report
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint

Until = Literal["stopped", "drained", "ended"]


class Runner(ABC):
    """A pipeline that is running; `notice` says what was done to its checkpoint before it started.

    Invariant: the lease of the checkpoint is held from before Spark starts until every query has ended.
    """

    def __init__(self, name: str, graph: Graph, settings: Settings, checkpoint: Checkpoint) -> None:
        self.name, self.graph, self.settings, self.checkpoint = name, graph, settings, checkpoint
        self.notice: str | None = None
        self.error: PenstockError | None = None
        self.queries: list[StreamingQuery] = []
        self._stopping, self._done = threading.Event(), threading.Event()

    def begin(self) -> Self:
        """Start the queries, and return at once."""
        try:
            self._start_queries()
        except BaseException as error:
            # Without its JVM there is nothing left to halt, and the first error reports that.
            with contextlib.suppress(Exception):
                self._halt()
            self._close()
            if isinstance(error, Exception):
                raise self._translated(error) from error
            raise
        threading.Thread(target=self._drive, name=f"penstock-{self.name}", daemon=True).start()
        return self

    def stop(self) -> None:
        """Ask for a clean stop: the running epoch is finished, in real time ended early, and no other starts."""
        self._stopping.set()

    def abort(self) -> None:
        """Stop without finishing the epoch that is running; the next run of the checkpoint does it again."""
        self.stop()
        for query in self.queries:
            # Without its JVM there is nothing left to stop.
            with contextlib.suppress(Exception):
                query.stop()

    def fence(self, token: int) -> None:
        """Record the fencing token of a newer job manager in the lease of the checkpoint."""
        self.checkpoint.lease.fence(token)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end and return whether it came; raises what made the job fail."""
        finished = self._done.wait(timeout)
        if finished and self.error is not None:
            raise self.error
        return finished

    @abstractmethod
    def progress(self) -> Progress:
        """Return the newest epoch and the totals so far."""

    @abstractmethod
    def report(self) -> Report:
        """Return what was done over all epochs of the checkpoint."""

    def _drive(self) -> None:
        try:
            self._watch()
        except Exception as error:  # in a thread of its own: `wait` raises it to the user
            self._fail(error)
        finally:
            try:
                self._finish()
            except Exception as error:  # Spark's JVM may be gone, and `wait` must raise that
                self._fail(error)
            self._close()
            self._done.set()

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = self._translated(error)

    def _translated(self, error: BaseException) -> PenstockError:
        """Return the error for the user; without the lease, it is that."""
        lost = self.checkpoint.lost()
        return self._error_of_query(error) if lost is None else lost

    def _close(self) -> None:
        self.checkpoint.close()

    def _finish(self) -> None:
        self._halt()

    @abstractmethod
    def _start_queries(self) -> None:
        """Start every query."""

    @abstractmethod
    def _watch(self) -> None:
        """Watch the queries until there is a reason to stop them."""

    @abstractmethod
    def _halt(self) -> None:
        """Stop every query."""

    @abstractmethod
    def _error_of_query(self, error: BaseException) -> PenstockError:
        """Return the user's form of an error of Spark."""
