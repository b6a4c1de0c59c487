"""Initial state of operators that a migration adds: Spark writes it in one epoch without rows, in a scratch folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from penstock.settings import Settings
from penstock.spark.checkpoints.history import History, is_checksum
from penstock.spark.lowering.compile import Query, tagged
from penstock.spark.session.spark_session import query_settings
from penstock.storage.folders import Folder

_CHANGELOG_CHECKPOINTING = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class InitialState:
    """A query of the new plan over sources without rows, to run in a scratch folder."""

    query: Query
    folder: Folder
    settings: Settings
    store: dict[str, str]

    def write(self, target: Folder, operators: list[int], version: int, conf: dict[str, str]) -> None:
        """Write the empty state of operators, as a version of a checkpoint's state."""
        if not self.folder.names():
            self._run_epoch(conf)
        written = History(self.folder)
        for number in operators:
            for name in written.files:
                if name.startswith(f"state/{number}/") and not is_checksum(name):
                    target.write(_path_of_version(name, version), written.read(name))

    def _run_epoch(self, conf: dict[str, str]) -> None:
        spark = self.query.context.spark
        ours = query_settings(self.settings, branches=self.query.branches)
        # Without changelogs RocksDB writes full snapshots, which need no earlier files.
        with _configured(spark, {**ours, **conf, **self.store, _CHANGELOG_CHECKPOINTING: "false"}):
            frame = tagged(list(self.query.frames))
            stream = frame.writeStream.outputMode(self.query.mode).foreachBatch(_consume)
            running = stream.option("checkpointLocation", self.folder.hadoop).start()
            try:
                running.processAllAvailable()
            finally:
                running.stop()


def _consume(frame: DataFrame, number: int) -> None:
    frame.collect()


@contextmanager
def _configured(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def _path_of_version(name: str, version: int) -> str:
    """Return the path of a file of the first version as another version; changes to an empty state are a snapshot.

    >>> _path_of_version("state/0/1/1.delta", 7), _path_of_version("state/0/_metadata/metadata", 7)
    ('state/0/1/7.snapshot', 'state/0/_metadata/metadata')
    """
    folder, _, file = name.rpartition("/")
    if not file.startswith("1."):
        return name
    return f"{folder}/{version}.{file.removeprefix('1.').replace('delta', 'snapshot')}"
