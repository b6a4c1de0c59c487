"""What runs share: a broker, a database, a Spark cluster; each is started when a run first asks for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster.standalone import QUICK, Cluster, standalone
from tests.crash.spares import Spares
from tests.log.server import LogProcess

# Drivers live for many short runs, several at a time.
LOCAL = {"spark.driver.extraJavaOptions": QUICK, "spark.driver.memory": "1g"}


def joined(spark: Mapping[str, str]) -> str:
    """Write Spark's settings as PENSTOCK_SPARK has them."""
    return ",".join(f"{name}={value}" for name, value in spark.items())


class _started_once(cached_property[Any]):
    """What two threads may ask for at the same time, and must get once."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with instance._lock:
            return super().__get__(instance, owner)


class Services:
    """A context manager that ends them all; runs that go on at the same time share them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = ExitStack()
        self._lock = threading.RLock()
        self.one_on_cluster = threading.Lock()

    def spares(self, *, on_cluster: bool) -> Spares:
        """Return the drivers that wait for jobs, here or on the cluster."""
        return self._cluster_spares if on_cluster else self._local_spares

    @_started_once
    def _local_spares(self) -> Spares:
        # As many tasks at once as a small machine has cores; each run has a parallelism of its own.
        env = {"PENSTOCK_SPARK_MASTER": "local[2,4]", "PENSTOCK_SPARK": joined(LOCAL)}
        return self._kept(Spares(env, self._folder / "spares"))

    @_started_once
    def _cluster_spares(self) -> Spares:
        env = {"PENSTOCK_SPARK_MASTER": self.cluster.url, "PENSTOCK_SPARK": joined(LOCAL | self.spark)}
        return self._kept(Spares(env, self._folder / "cluster-spares"))

    def _kept(self, spares: Spares) -> Spares:
        self._ends.callback(spares.end)
        return spares

    @_started_once
    def broker(self) -> LogProcess:
        """Penstock's log."""
        folder = self._folder / "broker"
        folder.mkdir(parents=True)
        return self._ends.enter_context(LogProcess(folder, "--partitions", "2"))

    @_started_once
    def database(self) -> str:
        """The URL of a database in PostgreSQL."""
        from tests.databases import running_postgres

        return self._ends.enter_context(running_postgres()).url

    @_started_once
    def cluster(self) -> Cluster:
        """A Spark standalone cluster of two workers."""
        folder = self._folder / "cluster"
        folder.mkdir(parents=True)
        return self._ends.enter_context(standalone(folder))

    @property
    def spark(self) -> dict[str, str]:
        """What Spark is told of the cluster."""
        return {
            "spark.driver.extraJavaOptions": QUICK,
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
