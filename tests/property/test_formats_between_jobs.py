"""Promise: a job reads the files of another job as they were written, at the edges of each type too."""

from __future__ import annotations

import math
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.settings import Settings
from tests.property.test_formats import EPOCH, EPOCH_DAY


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_job_reads_what_another_job_has_written(tmp_path: Path, settings: Settings, format: str) -> None:
    schema = "n bigint, s string, d double, f float, e decimal(20,10), y date, ts timestamp"
    texts = ["a\nb", "c\r\nd", '"', "", None, "é,;\t", "NULL", " x "]
    numbers = [0.1, math.inf, -math.inf, -0.0, None, 1e300, math.nan, 5e-324]
    rows = [
        {
            "n": n,
            "s": texts[n % len(texts)],
            "d": numbers[n % len(numbers)],
            "f": numbers[n % 5],
            "e": Decimal(n % 3).scaleb(-10),
            "y": EPOCH_DAY + timedelta(days=n * 1000 - 700_000),
            "ts": EPOCH + timedelta(days=n, microseconds=n),
        }
        for n in range(16)
    ]
    out = str(tmp_path / "out")
    first = ps.Pipeline("write", ps.from_items(rows, schema).to(ps.files(out, format=format)))
    first.run(until="ended", checkpoint=str(tmp_path / "one"), settings=settings)
    sink = ps.collect()
    second = ps.Pipeline("read", ps.read_files(out, schema=schema, format=format).to(sink))
    report = second.run(until="ended", checkpoint=str(tmp_path / "two"), settings=settings)
    found = sorted(sink.rows, key=lambda row: row["n"])
    found = [row | {"ts": row["ts"].astimezone(UTC)} for row in found]
    assert [repr(row) for row in found] == [repr(_as_single(row)) for row in rows]
    assert report.counts["out"].rejected == 0


def _as_single(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"f": pa.array([row["f"]], pa.float32())[0].as_py()}
