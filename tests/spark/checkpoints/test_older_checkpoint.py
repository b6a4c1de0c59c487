"""Promise: with an older copy of its checkpoint put back a job stops with an error; it never skips new rows."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import LedgerAhead
from penstock.settings import Settings
from tests.spark.sink_targets import Targets

SCHEMA = "k string, n bigint"


def feed(folder: Path, begin: int, end: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = (f"k{n % 3},{n}\n" for n in range(begin, end))
    (folder / f"{begin:06}.csv").write_text("k,n\n" + "".join(lines))


# Other sinks are in test_ledgers.py.
def test_an_older_copy_of_the_checkpoint_is_refused_and_postgresql_keeps_its_rows(
    settings: Settings, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Targets(tmp_path, request).make("postgresql")
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"

    def run() -> None:
        rows = ps.read_files(str(tmp_path / "in"), format="csv", schema=SCHEMA)
        ps.Pipeline("older", rows.to(target.sink)).run(until="drained", checkpoint=checkpoint, settings=settings)

    feed(tmp_path / "in", 0, 100)
    run()
    shutil.copytree(checkpoint, copy)
    feed(tmp_path / "in", 100, 200)
    run()
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    feed(tmp_path / "in", 200, 400)
    with pytest.raises(LedgerAhead, match="does not know"):
        run()
    assert Counter(row["n"] for row in target.rows()) == Counter(range(200))
