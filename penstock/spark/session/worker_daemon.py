"""The process that Spark forks its Python workers from, in local mode: it has imported what they all need.

A query needs several workers for each core, and imports take each of them a second of processor time.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pyspark.daemon import manager

NEEDED = (
    "duckdb",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "penstock.spark.epochs.sink_tasks",
    "penstock.spark.tasks.scan",
    "penstock.spark.lowering.python.process",
)

if __name__ == "__main__":
    # The process that searches for data sources needs none of it.
    if not any(name.endswith("lookup_data_sources") for name in sys.argv):
        for name in NEEDED:
            import_module(name)
        # A worker collects garbage after each task: without this it would scan all these modules each time.
        gc.freeze()
    manager()
