"""A job whose checkpoint and savepoints are in S3: looked at, saved, forked and changed by the command line alone."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.spark.session.jars import jar_sets
from tests.s3 import BUCKET

pytestmark = pytest.mark.slow

JOB = """
import penstock as ps

rows = ps.read_files("in", schema="k string, v bigint, ts timestamp", format="json").named("rows"){changed}
windows = rows.event_time("ts", max_delay="5s").key_by("k").window(ps.tumbling("60s"))
sums = windows.aggregate(n="count(v)", total="sum(v)"{added}).named("sums")
pipeline = ps.Pipeline("{name}", sums.to(ps.files("{out}", format="json")))
"""
ROWS, KEYS = 3000, 7
Penstock = Callable[..., str]
Sums = collections.Counter[tuple[str, int, int]]


@pytest.fixture
def penstock(s3: dict[str, str], tmp_path: Path) -> Penstock:
    if not jar_sets()["s3"].fetched:
        pytest.skip("Hadoop's S3A is not here: penstock jars fetch s3")
    (tmp_path / "in").mkdir()

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "penstock", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | s3, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def write_job(folder: Path, *, name: str = "sums", out: str = "out", changed: str = "", added: str = "") -> None:
    (folder / "job.py").write_text(JOB.format(name=name, out=out, changed=changed, added=added))


def feed(folder: Path, first: int, end: int) -> None:
    rows = (
        {"k": f"k{n % KEYS}", "v": n, "ts": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"} for n in range(first, end)
    )
    (folder / "in" / f"{first:05}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def written(folder: Path) -> Sums:
    lines = [line for file in folder.glob("*.json*") for line in file.read_text().splitlines()]
    return collections.Counter((row["k"], row["n"], row["total"]) for row in map(json.loads, lines))


def batch() -> Sums:
    groups: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
    for number in range(ROWS):
        groups[f"k{number % KEYS}", number // 60].append(number)
    return collections.Counter((key, len(group), sum(group)) for (key, _), group in groups.items())


def test_a_job_on_s3_is_seen_saved_forked_and_changed(penstock: Penstock, tmp_path: Path) -> None:
    there = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    checkpoint, fork, savepoints = f"{there}/checkpoint", f"{there}/fork", f"{there}/savepoints"
    feed(tmp_path, 0, ROWS // 2)
    write_job(tmp_path)
    penstock("run", "job.py", "--until", "drained", "--checkpoint", checkpoint)
    before = written(tmp_path / "out")

    state = json.loads(penstock("state", checkpoint, "--key", "k1", "--json"))
    assert {row["k"] for row in state["rows"]} == {"k1"}
    assert before[("k1", state["rows"][-1]["n"], state["rows"][-1]["total"])] == 0
    assert "sums" in penstock("checkpoints", checkpoint)
    penstock("savepoint", "create", checkpoint, "--to", savepoints, "--name", "a")
    assert json.loads(penstock("savepoint", "list", savepoints, "--json"))[0]["whole"]

    feed(tmp_path, ROWS // 2, ROWS)
    write_job(tmp_path, changed='.filter("v >= 0")', added=', mean="sum(v) / count(v)"')
    assert "state of 'sums' kept" in penstock("run", "job.py", "--until", "ended", "--checkpoint", checkpoint)
    assert written(tmp_path / "out") == batch()
    penstock("savepoint", "create", checkpoint, "--to", savepoints, "--name", "ended")

    penstock("savepoint", "restore", f"{savepoints}/a", "--checkpoint", fork, "--name", "fork")
    write_job(tmp_path, name="fork", out="forked")
    penstock("run", "job.py", "--until", "ended", "--checkpoint", fork)
    assert before + written(tmp_path / "forked") == batch()
    for name in ("a", "ended"):
        penstock("savepoint", "delete", f"{savepoints}/{name}")
    assert json.loads(penstock("savepoint", "list", savepoints, "--json")) == []
