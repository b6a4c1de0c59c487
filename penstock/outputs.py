"""Where streams end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from penstock.connectors.callback import CallbackSink
from penstock.connectors.collect import CollectSink
from penstock.connectors.console import ConsoleSink
from penstock.connectors.files import FileSink
from penstock.contracts import Epoch


def files(
    path: str,
    *,
    format: Literal["parquet", "csv", "json"] = "parquet",
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write files to a folder, exactly once: readers that list it see whole epochs only."""
    names = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return FileSink(path, format, names)


def console() -> ConsoleSink:
    """Print rows where the job runs; at least once."""
    return ConsoleSink()


def collect() -> CollectSink:
    """Keep rows in memory, in `.rows`: for tests and notebooks."""
    return CollectSink()


def callback(fn: Callable[[Epoch, Any], None]) -> CallbackSink:
    """Call a function in the driver with each epoch's rows as an Arrow table; at least once."""
    return CallbackSink(fn)
