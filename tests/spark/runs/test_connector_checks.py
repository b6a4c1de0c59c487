"""Warnings about sinks before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.contracts import Epoch
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.runs.connector_checks import warn_of_earlier_rows


def test_rows_that_a_deleted_checkpoint_knew_of_are_said_to_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = ps.files(str(tmp_path / "out"))
    rows = ps.from_items([], "a bigint")
    graph = ps.Pipeline("p", rows.to(sink)).graph

    def warned(where: str) -> str:
        caplog.clear()
        checkpoint = Checkpoint(tmp_path / where, "p", graph)
        warn_of_earlier_rows(graph, checkpoint)
        checkpoint.close()
        return caplog.text

    assert warned("first") == ""
    sink.open(rows.schema, ())
    epoch = Epoch("earlier", "out", 0)
    sink.commit(epoch, [sink.prepare(epoch, 0, [pa.RecordBatch.from_pydict({"a": [1]})])])
    assert f"the sink 'out' (files '{tmp_path}/out') has rows of an earlier run" in warned("second")
    assert f"checkpoint {tmp_path}/second is new" not in warned("second"), "it was begun"
