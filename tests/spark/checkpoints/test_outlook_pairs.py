"""Promise: for any few damaged files together, `penstock checkpoints` says that the next run stops if it does."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointDamaged
from penstock.spark.checkpoints.identity import FORMAT, Identity, write_identity
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.checkpoints.layout import Layout, QueryLayout, write_layout
from penstock.spark.tasks.totals import Totals
from penstock.storage.folders import folder
from tests.spark.checkpoints.test_damaged_runs import preflight

NEWEST = 5
RECORD = json.dumps(dataclasses.asdict(Totals())).encode()
QUERIES = {"final": ["clicks"], "sums": ["clicks", "names"]}
# What a damaged file holds; None deletes it.
CONTENTS = [None, b"", b"x", b"[]", b"5", b'{"a": {"x": 1}}', b'{"clicks": 5}', b"v1\n[]\n{}"]


def make(where: Path, newest: int = NEWEST) -> None:
    """Write the checkpoint of a job without state; the second of its two queries has two sources."""
    root = folder(where)
    write_identity(root, Identity(FORMAT, "clicks", "lineage", "skeleton", {}, {}))
    root.write("pace", b"epochs")
    write_layout(root, Layout("", None, {name: QueryLayout(reads, [name], []) for name, reads in QUERIES.items()}))
    for name, reads in QUERIES.items():
        query = root / "queries" / name
        query.write("metadata", b'{"id":"x"}')
        root.write(f"parted-{name}.json", b"{}")
        for epoch in range(newest + 1):
            ends = "".join(f'\n{{"0":{epoch + 1}}}' for _ in reads)
            header = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
            query.write(f"offsets/{epoch}", f"v1\n{header}{ends}".encode())
            query.write(f"commits/{epoch}", b'v1\n{"nextBatchWatermarkMs":0}')
            root.write(f"epochs/{name}/{epoch}.json", RECORD)
        for source in reads:
            planned = [newest, {"0": newest + 1}, None, []]
            root.write(f"sources/{source}/planned-{name}.json", json.dumps(planned).encode())


FILES = [
    *("pace", "layout.json", "parted-final.json"),
    *(f"queries/{query}/{name}" for query in QUERIES for name in ("metadata", "replay.json", "bounds.json")),
    *(f"queries/{query}/{log}/{n}" for query in QUERIES for log in ("offsets", "commits") for n in range(NEWEST + 1)),
    *(f"epochs/{query}/{n}.json" for query in QUERIES for n in range(NEWEST + 1)),
    *("sources/clicks/planned-final.json", "sources/clicks/planned-sums.json", "sources/names/planned-sums.json"),
]
# Those that a run reads are drawn more often.
READ = [name for name in FILES if not re.search(r"/[0-3](\.json)?$", name)]
DAMAGE = st.dictionaries(st.sampled_from(READ) | st.sampled_from(FILES), st.sampled_from(CONTENTS), max_size=4)
F = "queries/final"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where: Path = tmp_path_factory.mktemp("intact") / "checkpoint"
    make(where)
    return where


@settings(max_examples=500)
@given(damage=DAMAGE)
@example({f"{F}/commits/4": b"x", f"{F}/commits/5": b"x", "epochs/final/4.json": b"x", "epochs/final/5.json": b"x"})
@example({f"{F}/commits/5": b"x", "epochs/final/4.json": b"x"})
@example({"pace": None, "layout.json": None})
@example({"pace": b"x", f"{F}/commits/5": b"x"})
@example({f"{F}/commits/4": None, f"{F}/commits/5": None, f"{F}/offsets/5": b'v1\n{"conf": {}}'})
@example({f"{F}/offsets/5": b"x", "sources/clicks/planned-final.json": b"5"})
@example({f"{F}/replay.json": b"[]"})
@example({f"{F}/replay.json": b'{"clicks": 5}'})
@example({f"{F}/replay.json": b"", f"{F}/offsets/5": b"x"})
@example({f"{F}/bounds.json": b"", f"{F}/offsets/5": b"x"})
@example({f"{F}/offsets/3": None, f"{F}/offsets/5": b"x"})
@example({f"{F}/offsets/5": b"x", "sources/clicks/planned-final.json": None, "queries/sums/offsets/4": b"x"})
def test_what_checkpoints_says_of_damaged_files_is_what_the_next_run_does(
    intact: Path, damage: dict[str, bytes | None]
) -> None:
    with tempfile.TemporaryDirectory() as made:
        checkpoint = Path(made) / "checkpoint"
        shutil.copytree(intact, checkpoint)
        for name, content in damage.items():
            path = checkpoint / name
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        said, stops = said_of(checkpoint)
        outcome = preflight(checkpoint)
        assert outcome is None or isinstance(outcome, CheckpointDamaged), repr(outcome)
        assert (outcome is not None) == stops, f"{damage} {outcome!r} {said}"
        if outcome is None and len(damage) < 3:
            assert preflight(checkpoint) is None, damage


def said_of(checkpoint: Path) -> tuple[list[str], bool]:
    """What `penstock checkpoints` says that the next run does, and whether that is to stop."""
    try:
        found = inspect(folder(checkpoint))
    except CheckpointDamaged as error:
        return [error.message], True
    said = [*found.next_run.values(), *(query.next_run for query in found.queries.values() if query.next_run)]
    return said, any(one.startswith("the next run stops") for one in said)
