"""Promise: exactly once, end to end, under kill -9. Real processes, killed at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

# The first aggregates in the native lane, inside the scan; the second has branches and Python, so Spark does all of it.
PIPELINES = {
    "native": """
    return ps.Pipeline("job", prices(trades))
""",
    "branches": """
    noted = trades.map(lambda row: row, on_error="fail")
    return ps.Pipeline("job", prices(noted), noted.filter("size > 990").to(ps.files(f"{data}/large")))
""",
}
HEAD = """
import penstock as ps

def job(data: str) -> ps.Pipeline:
    def prices(rows):
        windows = rows.filter("size > 0").event_time("ts", "5s").key_by("symbol").window(
            ps.tumbling("10s"), late_to=ps.files(f"{data}/late"))
        return windows.aggregate(volume="sum(size)", trades="count(*)").to(ps.files(f"{data}/prices"))

    trades = ps.read_files(f"{data}/trades", schema="symbol string, price double, size bigint, ts timestamp")
"""


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_killed_job_writes_each_result_once(kind: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    from penstock.demo.trades import write_trades

    seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.SystemRandom().randrange(10**6)))
    chance = random.Random(seed)
    print(f"PENSTOCK_TEST_SEED={seed}")
    write_trades(tmp_path / "trades", 400_000, 50, seed)
    (tmp_path / "job.py").write_text(HEAD + PIPELINES[kind])
    for _ in range(pytestconfig.getoption("--crash-runs")):
        _kill_somewhere(tmp_path, chance)
    finished = _start(tmp_path)
    out, _ = finished.communicate()
    assert finished.returncode == 0, out
    _same_as_batch(tmp_path, large=kind == "branches")


def _start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.cli", "run", str(folder / "job.py"), "--set", f"data={folder}"]
    command += ["--checkpoint", str(folder / "checkpoint"), "--until", "ended"]
    env = os.environ | {"PENSTOCK_EPOCH_ROWS": "50000"}
    # These runs are short: a JVM that compiles little starts sooner.
    env |= {"PENSTOCK_SPARK": "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=env)


def _kill_somewhere(folder: Path, chance: random.Random) -> None:
    """Kill the driver a moment after an epoch: in the next one's scan, write or commit, or between two."""
    job = _start(folder)
    assert job.stdout is not None
    said = []
    for line in job.stdout:
        said.append(line)
        if line.startswith("epoch") and chance.random() < 0.6:
            break
    time.sleep(chance.random() * 0.8)
    job.send_signal(signal.SIGKILL)
    job.wait()
    job.stdout.close()
    assert any(line.startswith("epoch") for line in said), "".join(said)


def _same_as_batch(folder: Path, *, large: bool) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW raw AS FROM read_parquet('{folder}/trades/*.parquet')")
    late = "SELECT * FROM raw LIMIT 0"
    if list((folder / "late").glob("*.parquet")):
        late = f"SELECT symbol, price, size, ts FROM read_parquet('{folder}/late/*.parquet')"
    expected = f"""
        SELECT symbol, time_bucket(INTERVAL 10 SECOND, ts) AS window_start,
               sum(size)::BIGINT AS volume, count(*) AS trades
        FROM (SELECT * FROM raw WHERE size > 0 EXCEPT ALL {late}) GROUP BY ALL"""
    actual = f"SELECT symbol, window_start, volume, trades FROM read_parquet('{folder}/prices/*.parquet')"
    _assert_equal(connection, expected, actual)
    if large:
        kept = f"SELECT * FROM read_parquet('{folder}/large/*.parquet')"
        _assert_equal(connection, "SELECT * FROM raw WHERE size > 990", kept)


def _assert_equal(connection: duckdb.DuckDBPyConnection, expected: str, actual: str) -> None:
    lost = connection.sql(f"({expected}) EXCEPT ALL ({actual})").fetchall()
    extra = connection.sql(f"({actual}) EXCEPT ALL ({expected})").fetchall()
    assert (lost, extra) == ([], [])
