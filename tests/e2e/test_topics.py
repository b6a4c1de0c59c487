"""From topic to topic with the command line alone, and under kill -9."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.connectors.formats.json.writer import json_documents
from penstock.connectors.generators.datagen import DataGen
from tests.connectors.kafka_topics import fresh

ROOT = Path(__file__).parents[2]
QUICK = os.environ | {"PENSTOCK_SPARK": "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"}
EXPECTED = """
    SELECT symbol, sum(price * size) / sum(size) AS vwap, sum(size) AS volume, count(*) AS trades
    FROM (SELECT *, time_bucket(INTERVAL '60s', ts) AS minute FROM rows WHERE size > 0)
    GROUP BY symbol, minute
"""
COPY = """
import penstock as ps

def copy(source: str, target: str, broker: str) -> ps.Pipeline:
    rows = ps.read_topic(source, schema="n bigint", connection=broker)
    return ps.Pipeline("copy", rows.with_columns(m="n * 2").to(ps.topic(target, key="n", connection=broker)))
"""


def test_vwap_goes_from_topic_to_topic_by_the_command_line_alone(
    event_log: str, tmp_path: Path, penstock: Callable[..., str]
) -> None:
    source = fresh(event_log, "trades")
    rows = next(iter(DataGen("trades", rows=20_000, keys=50, seed=3).read("0", 0, 20_000)))
    (tmp_path / "trades.json").write_text("\n".join([*json_documents(rows).to_pylist(), "no trade"]))
    penstock("topic", "create", source.name, "--partitions", "2", PENSTOCK_LOG=event_log)
    penstock("produce", source.name, "--file", "trades.json", PENSTOCK_LOG=event_log)
    job = ["run", str(ROOT / "examples/vwap_topics.py"), "--set", f"source={source.name}", "--until", "ended"]
    penstock(*job, "--checkpoint", "c", PENSTOCK_LOG=event_log)
    said = penstock("consume", "vwap", "--format", "raw", PENSTOCK_LOG=event_log)
    found = {(row["symbol"], row["volume"], row["trades"]): row["vwap"] for row in map(json.loads, said.splitlines())}
    wanted: list[Any] = duckdb.sql(EXPECTED).fetchall()
    assert len(found) == len(wanted)
    assert all(math.isclose(found[symbol, volume, n], vwap, rel_tol=1e-12) for symbol, vwap, volume, n in wanted)
    assert len(penstock("consume", "bad-trades", PENSTOCK_LOG=event_log).splitlines()) == 1


@pytest.mark.slow
def test_a_killed_job_loses_no_record(event_log: str, tmp_path: Path, penstock: Callable[..., str]) -> None:
    source, target = fresh(event_log, "in").create(2), fresh(event_log, "out")
    for partition in range(2):
        source.produce([b'{"n":%d}' % n for n in range(partition, 20_000, 2)], partition=partition)
    (tmp_path / "job.py").write_text(COPY)
    sets = [part for value in (f"source={source.name}", f"target={target.name}", f"broker={event_log}")
            for part in ("--set", value)]  # fmt: skip
    job = ["run", "job.py", *sets, "--checkpoint", "c", "--until", "drained"]
    command = [sys.executable, "-m", "penstock.cli", *job]
    env = QUICK | {"PENSTOCK_EPOCH_ROWS": "4000"}
    killed = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )
    assert killed.stdout is not None
    said = [next(killed.stdout, "")]
    while said[-1] and not said[-1].startswith("epoch"):
        said.append(next(killed.stdout, ""))
    assert said[-1], "".join(said)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    penstock(*job, PENSTOCK_EPOCH_ROWS="4000")
    found = [(message.key(), json.loads(message.value())) for message in target.consume()]
    assert {row["n"] for _, row in found} == set(range(20_000))
    assert all(row["m"] == row["n"] * 2 and key == b"%d" % row["n"] for key, row in found)
    assert source.committed("penstock-copy") == {0: 10_000, 1: 10_000}
