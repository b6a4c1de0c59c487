"""What runs share: a broker, a database, a Spark cluster; each is started when a run first asks for it."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.standalone import QUICK, Cluster, standalone
from tests.log.server import LogProcess


class Services:
    """A context manager that ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = ExitStack()

    @cached_property
    def broker(self) -> LogProcess:
        """Penstock's log."""
        folder = self._folder / "broker"
        folder.mkdir(parents=True)
        return self._ends.enter_context(LogProcess(folder, "--partitions", "2"))

    @cached_property
    def database(self) -> str:
        """The URL of a database in PostgreSQL."""
        from tests.databases import running_postgres

        return self._ends.enter_context(running_postgres()).url

    @cached_property
    def cluster(self) -> Cluster:
        """A Spark standalone cluster of two workers."""
        folder = self._folder / "cluster"
        folder.mkdir(parents=True)
        return self._ends.enter_context(standalone(folder))

    @property
    def spark(self) -> dict[str, str]:
        """What Spark is told of the cluster."""
        return {
            "spark.pyspark.python": str(self.cluster.python),
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.cores.max": "2",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
