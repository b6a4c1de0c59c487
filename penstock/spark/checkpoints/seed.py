"""Empty state of any version, as Spark itself writes it: a plan runs one epoch without rows in a scratch folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from penstock.folders import Folder
from penstock.settings import Settings
from penstock.spark.checkpoints.history import History, is_checksum
from penstock.spark.lowering.compile import Query, tagged
from penstock.spark.session import query_settings

_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True)
class Seed:
    """The new plan's query over sources that give nothing, run in a scratch folder."""

    query: Query
    folder: Folder
    settings: Settings
    store: dict[str, str]

    def plant(self, target: Folder, operators: list[int], version: int, conf: dict[str, str]) -> None:
        """Give operators an empty state of a version, as Spark would have written it."""
        if not self.folder.names():
            self._run(conf)
        grown = History(self.folder)
        for number in operators:
            for name in grown.files:
                if name.startswith(f"state/{number}/") and not is_checksum(name):
                    target.write(_of_version(name, version), grown.read(name))

    def _run(self, conf: dict[str, str]) -> None:
        spark = self.query.context.spark
        ours = query_settings(self.settings, branches=self.query.branches)
        # Without logs of changes RocksDB writes whole snapshots, which need nothing before them.
        with _configured(spark, {**ours, **conf, **self.store, _CHANGELOGS: "false"}):
            frame = tagged(list(self.query.frames))
            stream = frame.writeStream.outputMode(self.query.mode).foreachBatch(_run_through)
            running = stream.option("checkpointLocation", self.folder.hadoop).start()
            try:
                running.processAllAvailable()
            finally:
                running.stop()


def _run_through(frame: DataFrame, number: int) -> None:
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


def _of_version(name: str, version: int) -> str:
    """Return where a file of the first version belongs; changes against nothing are a snapshot.

    >>> _of_version("state/0/1/1.delta", 7), _of_version("state/0/_metadata/metadata", 7)
    ('state/0/1/7.snapshot', 'state/0/_metadata/metadata')
    """
    folder, _, file = name.rpartition("/")
    if not file.startswith("1."):
        return name
    return f"{folder}/{version}.{file.removeprefix('1.').replace('delta', 'snapshot')}"
