"""Reads a node's state as a table: from the files if possible, else with Spark, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.plan.translation.parts import NotNative
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import checkpoint_at, offsets_by_source
from penstock.spark.checkpoints.layout import read_layout
from penstock.spark.checkpoints.state.file_reader import FileReader
from penstock.spark.checkpoints.state.store_files import why_spark_is_needed
from penstock.spark.checkpoints.state.tables import StateReader, StateTable, StateVersion, find_state
from penstock.storage.folders import Folder


def read_state(
    root: Folder,
    settings: Settings,
    *,
    node: str | None = None,
    key: str | None = None,
    at: int | None = None,
    limit: int = 100,
    report: Callable[[str], None] = lambda text: None,
) -> StateTable:
    """Read the state of a node, after epoch `at` if given; `report` is called with the reason if Spark is started."""
    version = find_state(root, node, at)
    reason = why_spark_is_needed(version.stores, version.epoch + 1)
    more: dict[str, Any] = {"offsets": _offsets(version), "keys": version.operator.keys}
    if reason is None:
        try:
            return replace(FileReader(version).read(key, limit), **more)
        except NotNative as not_native:
            reason = f"a result is not portable ({not_native})"
    report(f"starting Spark to read the state: {reason}")
    return replace(_spark_reader(version, settings).read(key, limit), **more)


def _spark_reader(version: StateVersion, settings: Settings) -> StateReader:
    from penstock.spark.checkpoints.state.spark_reader import SparkReader  # imports pyspark, which takes long

    return SparkReader(version, settings)


def _offsets(version: StateVersion) -> dict[str, Any]:
    """Return the end offset of each source after the epoch, by source and partition."""
    layout = read_layout(checkpoint_at(version.root)).queries.get(version.query)
    if layout is None or version.epoch not in version.history.logged:
        return {}
    return offsets_by_source(layout.by_source(version.history.offsets(version.epoch)))
