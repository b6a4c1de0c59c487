"""The process that Spark forks its Python workers from, where it runs here: with what they all need imported before.

A query needs several workers for each core, and imports take each of them a second of processor time.
"""

from __future__ import annotations

import sys

from pyspark.daemon import manager

if not any("lookup" in one for one in sys.argv):
    import duckdb
    import pandas
    import pyarrow.compute
    import pyarrow.parquet

    import penstock
    import penstock.native
    import penstock.spark.epochs.prepare
    import penstock.spark.epochs.scan
    import penstock.spark.lowering.process  # noqa: F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
