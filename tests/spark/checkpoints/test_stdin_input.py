"""Promise: no line of standard input is lost silently when its copy in the checkpoint is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.files.stdin import StdinSource
from penstock.connectors.sinks.collect import CollectSink
from penstock.errors import CheckpointDamaged
from penstock.settings import Settings
from penstock.storage.durable_files import write_text
from tests.spark.checkpoints.damaged_jobs import cut, delete, reported


def test_a_run_does_not_take_its_input_for_lines_that_were_read_and_lost(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, sink = tmp_path / "checkpoint", CollectSink()

    def run(data: bytes) -> None:
        monkeypatch.setattr(StdinSource, "stream", io.BufferedReader(io.BytesIO(data)))
        pipeline = ps.Pipeline("lines", ps.read_stdin().to(sink))
        pipeline.run(until="ended", checkpoint=checkpoint, settings=settings)

    run(b"one\ntwo\nthree")
    (spool,) = checkpoint.glob("sources/*/spool")
    whole, where = spool.read_bytes(), "sources/stdin"
    assert reported(checkpoint) == ""
    for damage, reason in ((delete, "is missing"), (cut, "ends at 6, and the newest epoch has read up to 13")):
        damage(spool)
        assert reported(checkpoint) == f"{where}/spool {reason}"
        with pytest.raises(CheckpointDamaged, match=f"{where}/spool {reason}") as error:
            run(b"four\nfive\nsix\nseven\n")
        assert "put the file back from a copy" in str(error.value.hint)
        spool.write_bytes(whole)
    delete(spool.with_name("end"))
    assert f"{where}/end is missing" in reported(checkpoint)
    with pytest.raises(CheckpointDamaged, match=f"{where}/end is missing"):
        run(b"four\n")
    assert spool.read_bytes() == whole
    write_text(str(spool.with_name("end")), "")
    run(b"four\n")
    assert [row["value"] for row in sink.rows] == ["one", "two", "three", "four"]
