"""Spare drivers: Spark is started and warm before there is a job."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.pipeline import Pipeline
from penstock.secret_references import from_environment, with_values
from penstock.settings import Settings
from penstock.sinks import collect
from penstock.sources import from_items
from penstock.spark.runs.start import start_run
from penstock.spark.session.spark_session import session
from penstock.storage.folders import folder
from penstock.windows import tumbling


def start_spare(content: Mapping[str, Any]) -> None:
    """Start Spark with these settings, and let it load what the first epoch of a job needs.

    A JVM that has just started spends seconds on loading and compiling classes, and on its first Python processes.
    """
    settings = Settings.load(**with_values(content, from_environment(os.environ)))
    session(settings)
    with contextlib.suppress(PenstockError):
        _warm_up(settings)


def _warm_up(settings: Settings) -> None:
    items = [{"k": "a", "v": 1, "ts": "2026-01-01T00:00:00Z"}, {"k": "b", "v": 2, "ts": "2026-01-01T00:00:20Z"}]
    rows = from_items(items, "k string, v bigint, ts timestamp").event_time("ts", "5s")
    sums = rows.key_by("k").window(tumbling("10s")).aggregate(total="sum(v)")
    pipeline = Pipeline("warm-up", sums.to(collect()), rows.map(dict).to(collect()).named("rows"))
    with tempfile.TemporaryDirectory(prefix="penstock-spare-") as where:
        how = (pipeline.pace, (), pipeline.overload)
        start_run(pipeline.name, pipeline.graph, folder(where), settings, "ended", *how).wait()
