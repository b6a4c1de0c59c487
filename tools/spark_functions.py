"""Write penstock/plan/sql_expressions/functions.txt: each SQL function of Spark, its group and argument counts.

Run it after an upgrade of Spark: `python tools/spark_functions.py`. It takes some minutes, because Spark says
how many arguments a function takes only when it is called with a wrong number of them.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

TARGET = Path(__file__).parents[1] / "penstock" / "plan" / "sql_expressions" / "functions.txt"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_WRONG_COUNT = ("WRONG_NUM_ARGS", "REQUIRED_PARAMETER_NOT_FOUND")
_MOST = 8


def groups(spark: SparkSession) -> dict[str, str]:
    """Return each function's group, in Spark's words but for generators and aggregates filed elsewhere."""
    catalog = spark._jsparkSession.sessionState().catalog()
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    infos = {name: catalog.lookupFunctionInfo(identifier(name)) for name in _names(spark)}
    return {name: _group(spark, info) for name, info in infos.items()}


def argument_counts(spark: SparkSession, name: str) -> str:
    """Return how many arguments a function takes: `2`, `1-3`, or `1+`."""
    taken = [count for count in range(_MOST + 1) if _takes(spark, name, count)]
    if not taken:
        return "0+"
    if taken[-1] == _MOST:
        return f"{taken[0]}+"
    return f"{taken[0]}" if len(taken) == 1 else f"{taken[0]}-{taken[-1]}"


def _names(spark: SparkSession) -> Iterator[str]:
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        if name.isidentifier():
            yield name


def _group(spark: SparkSession, info: Any) -> str:
    """Name the group; Spark files `json_tuple` and `vector_sum` by subject, not by what they are."""
    said = str(info.getGroup()) or "grammar_funcs"
    if said == "window_funcs" or not info.getClassName():
        return said
    if _is_a(spark, info, f"{_EXPRESSIONS}.Generator"):
        return "generator_funcs"
    return "agg_funcs" if _is_a(spark, info, f"{_EXPRESSIONS}.aggregate.AggregateFunction") else said


def _is_a(spark: SparkSession, info: Any, parent: str) -> bool:
    jvm: Any = spark._jvm
    java = jvm.java.lang
    loader = java.Thread.currentThread().getContextClassLoader()
    child = java.Class.forName(info.getClassName(), False, loader)
    return bool(java.Class.forName(parent, False, loader).isAssignableFrom(child))


def _takes(spark: SparkSession, name: str, count: int) -> bool:
    try:
        spark.sql(f"SELECT {name}({', '.join(['NULL'] * count)})")
    except PySparkException as error:
        return not (error.getCondition() or "").startswith(_WRONG_COUNT)
    return True


def main() -> None:
    """Write the file."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").disabled = True
    found = sorted(groups(spark).items())
    TARGET.write_text("".join(f"{name} {group} {argument_counts(spark, name)}\n" for name, group in found))


if __name__ == "__main__":
    main()
