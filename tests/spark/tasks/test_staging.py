"""Promise: what the tasks of an epoch stage is published in the order of the tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark.tasks.staging import Kind, Staging
from penstock.storage.folders import LocalFolder


@pytest.mark.parametrize("kind", ["late", "rejected"])
# A task of a scan, of a stage, and a bucket of a process function.
@pytest.mark.parametrize("part", ["trades-7={}", "{}", "bucket{}"])
def test_rows_of_many_tasks_are_in_the_order_of_the_tasks(kind: Kind, part: str, tmp_path: Path) -> None:
    staging = Staging(LocalFolder(tmp_path))
    for number in reversed(range(120)):
        staging.put_rows(0, kind, "window-3", part.format(number), pa.table({"task": [number]}))
    assert [rows["task"][0].as_py() for _, rows in staging.rows(0, kind)] == list(range(120))
