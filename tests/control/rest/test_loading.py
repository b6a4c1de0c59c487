"""What the job manager and its clients load: it must stay small, and a client needs no server."""

from __future__ import annotations

import subprocess
import sys

import pytest

SPARK = ("pyspark", "py4j", "pyarrow", "duckdb", "pandas", "penstock.pipeline", "penstock.spark")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("penstock.control.rest.app", (*SPARK, "confluent_kafka")),
        ("penstock.control.api.jobs", (*SPARK, "fastapi", "starlette", "sqlalchemy", "httpx")),
    ],
)
def test_a_module_does_not_load_what_it_does_not_need(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
