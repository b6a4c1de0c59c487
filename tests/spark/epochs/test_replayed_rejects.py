"""Rejected rows go back into the job by `penstock replay`, and the job reads them as any row."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.cli import main
from penstock.entry_points import load_entry
from penstock.settings import Settings

JOB = """
import penstock as ps

def check(row, limit={limit}):
    if row["id"] > limit:
        raise ValueError("too large")
    return row

def job() -> ps.Pipeline:
    rows = ps.read_files("{here}/in", schema="id {type} not null, at timestamp", format="json")
    good = rows.event_time("at", "5s").map(check).named("checked").with_columns(id="cast(id AS bigint)")
    return ps.Pipeline("job", good.to(ps.files("{here}/out")), rejected_to=ps.files("{here}/bad", format="json"))
"""
LINES = [
    '{"id": 1, "at": "2026-01-01T00:00:00Z"}',
    '{"id": 1000, "at": "2026-01-01T00:00:01Z"}',
    '{"id": 2, "at": null}',
    '{"id": null, "at": "2026-01-01T00:00:02Z"}',
    '{"id": 99999999999, "at": "2026-01-01T00:00:03Z"}',
    "not JSON",
]


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: object) -> str:
        monkeypatch.setattr("sys.argv", ["penstock", *map(str, arguments)])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    return call


def test_repaired_rows_are_replayed_once_and_the_others_are_rejected_again(
    tmp_path: Path, settings: Settings, penstock: Callable[..., str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(LINES) + "\n")
    checkpoint = tmp_path / "checkpoint"

    def run(limit: int, type: str) -> ps.Pipeline:
        (tmp_path / "job.py").write_text(JOB.format(here=tmp_path, limit=limit, type=type))
        built = load_entry(str(tmp_path / "job.py"), [])
        built.run(until="drained", checkpoint=checkpoint, settings=replace(settings, lane="auto"))
        return built

    run(100, "int")
    arguments = ["replay", tmp_path / "job.py", "--checkpoint", checkpoint]
    said = penstock(*arguments, "--dry-run")
    assert "5 rejected rows in bad" in said
    assert "5 would be replayed into files in" in said
    assert "ValueError: too large" in said
    penstock(*arguments, "--node", "checked")
    assert "4 replayed" in penstock(*arguments)
    run(10**12, "bigint")
    assert sorted(ids(tmp_path / "out")) == [1, 1000, 99999999999]
    # What is still bad was rejected again, as rows of their own.
    bad = [json.loads(line) for file in (tmp_path / "bad").glob("*.json") for line in file.read_text().splitlines()]
    assert len(bad) == 5 + 3
    assert {one["source"] for one in bad} == {"in"}
    refused = next(one for one in bad if one["node"] == "checked")
    assert json.loads(refused["row"]) == {"id": 1000, "at": "2026-01-01T00:00:01Z"}
    assert refused["raw"] is None
    assert "3 replayed" in penstock(*arguments)


def ids(folder: Path) -> list[Any]:
    return [id for file in folder.glob("*.parquet") for id in pq.read_table(file).column("id").to_pylist()]
