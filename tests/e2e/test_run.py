"""The command line on a real Spark: running, stopping, refusing.

A signal needs a process of its own; the rest runs in this one, on the session that all tests share.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb

from penstock.connectors.generators.datagen import DataGen
from penstock.entry_points import load_entry
from penstock.settings import Settings
from tests.e2e.conftest import Done
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
# These jobs are short: a JVM that compiles little starts sooner.
QUICK = os.environ | {"PENSTOCK_SPARK": "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"}
ENDLESS = """
import penstock as ps
rows = ps.datagen("n bigint, ts timestamp", rate=2000)
pipeline = ps.Pipeline("endless", rows.to(ps.files("{out}")))
"""


def test_sigterm_finishes_the_epoch_and_the_next_run_goes_on(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "job.py").write_text(ENDLESS.format(out=tmp_path / "out"))
    command = [sys.executable, "-m", "penstock.cli", "run", "job.py", "--checkpoint", "c"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": QUICK}
    job = subprocess.Popen(command, cwd=tmp_path, **pipes)
    assert job.stdout is not None
    assert job.stderr is not None
    lines = [next(job.stdout) for _ in range(2)]
    assert all(line.startswith("epoch") for line in lines)
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=QUICK, timeout=300)
    assert refused.returncode == 2
    assert "is in use" in refused.stderr
    assert f"process {job.pid}" in refused.stderr
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    assert "stopped; run again to continue" in out
    before = len(_numbers(tmp_path / "out"))
    again = load_entry(str(tmp_path / "job.py")).start(checkpoint=tmp_path / "c", settings=settings)
    wait_for(lambda: len(_numbers(tmp_path / "out")) > before, "the next run wrote nothing")
    again.stop()
    again.wait()
    written = _numbers(tmp_path / "out")
    batches = DataGen("n bigint, ts timestamp").read("0", 0, len(written))
    assert written == sorted(n for batch in batches for n in batch.column("n").to_pylist())


def _numbers(folder: Path) -> list[int]:
    return sorted(n for (n,) in duckdb.sql(f"SELECT n FROM read_parquet('{folder}/*.parquet')").fetchall())


def test_a_checkpoint_of_another_window_is_refused_with_a_table_of_what_would_be_lost(
    tmp_path: Path, command_line: Callable[..., Done]
) -> None:
    job = """
import penstock as ps
rows = ps.datagen("trades", rows=100).event_time("ts", "5s")
sums = rows.window(ps.tumbling("10s")).aggregate(n="count(*)")
pipeline = ps.Pipeline("job", sums.to(ps.files("out")))
"""
    (tmp_path / "job.py").write_text(job)
    first = command_line("run", "job.py", "--checkpoint", "c", "--until", "ended")
    assert first.returncode == 0, first.stderr
    # Another file, for Python may take what it compiled of the first for the second.
    (tmp_path / "changed.py").write_text(job.replace("10s", "60s"))
    second = command_line("run", "changed.py", "--checkpoint", "c", "--until", "ended")
    assert second.returncode == 2
    assert re.search(r"fingerprint \w{12} there, \w{12} here", second.stderr)
    assert re.search(r"\n  aggregate +LOST +window: tumbling\(10s\) -> tumbling\(1m\)\n", second.stderr)
    assert "\n  accept the loss with --allow-drop aggregate; or run the old version" in second.stderr
    assert "Traceback" not in second.stderr


def test_word_count_reads_standard_input(command_line: Callable[..., Done]) -> None:
    example = str(ROOT / "examples/word_count.py")
    done = command_line("run", example, "--until", "ended", stdin="a b a\nB c\n")
    assert done.returncode == 0, done.stderr
    assert "word-count" in done.stdout
    words = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in done.stdout.splitlines() if "│" in line}
    assert words["a"] == "2"
    assert words["b"] == "2"


def test_vwap_example_counts_every_trade(tmp_path: Path, command_line: Callable[..., Done]) -> None:
    example = str(ROOT / "examples/vwap.py")
    done = command_line("run", example, "--set", "data=m", "--set", "rows=50000", "--until", "ended")
    assert done.returncode == 0, done.stderr
    (used,) = duckdb.sql(f"SELECT sum(trades) FROM read_parquet('{tmp_path}/m/vwap/*.parquet')").fetchall()[0]
    late = list((tmp_path / "m/late").glob("*.parquet"))
    aside = (
        duckdb.sql(f"SELECT count(*) FROM read_parquet('{tmp_path}/m/late/*.parquet')").fetchall()[0][0] if late else 0
    )
    assert f"{used + aside:,}" in done.stdout


def test_the_demo_compares_every_row(tmp_path: Path, command_line: Callable[..., Done]) -> None:
    done = command_line("demo", "--events", "60000", "--symbols", "100", "--data", "d")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows are equal" in done.stdout
    assert list(tmp_path.glob("d/*/vwap.png"))
