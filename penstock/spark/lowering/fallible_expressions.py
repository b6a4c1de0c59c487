"""Expressions that can fail on a row: Spark evaluates them so that a failure rejects the row, not the job.

Each is evaluated once, as `TryEval(struct(expression))`: null if and only if it failed, because a struct is never null.
Two rules of Spark would move parts of it out of the attempt: the elimination of common subexpressions, and the
projection of common expressions (`nullif`, `between`). Neither touches a branch of a CASE, so each attempt is in one
whose condition is always true, which Spark cannot infer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import BadSchema
from penstock.plan.operators.node import Node
from penstock.plan.operators.row_expressions import fallible_expressions, rejects_here
from penstock.plan.translation.fallibility import Probe, can_fail, generic_reason, probes
from penstock.rejected.rows import row_dicts
from penstock.schema import Schema, arrow_type
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.side_outputs import divert, stage_rejected
from penstock.spark.tasks.internal_columns import PREFIX

TRIED = PREFIX + "tried"
_VALUE, _ROW, _WHY = "value", "row", "why"


def attempted(frame: DataFrame, node: Node, context: Context, wanted: Sequence[str]) -> tuple[DataFrame, list[Column]]:
    """Return expressions of a node over its rows, and the frame without the rows on which one of them fails.

    Where nothing can fail, or rejected rows have no output, the expressions are unchanged.
    """
    schema = node.inputs[0].schema
    risky = [sql for sql in dict.fromkeys(wanted) if context.rejects and can_fail(sql, schema)]
    if not risky:
        return frame, [F.expr(sql) for sql in wanted]
    names = {sql: f"{TRIED}{number}" for number, sql in enumerate(risky)}
    tried = frame.select("*", *(attempt(F.expr(sql), context.spark).alias(name) for sql, name in names.items()))
    failed = reduce(Column.__or__, (F.col(name).isNull() for name in names.values()))
    if context.again(node) or not rejects_here(node, context.graph):
        kept = tried.filter(~failed)
    else:
        kept = _rejecting(tried, failed, Reasons(tried, names, schema), node, context)
    return kept, [F.col(f"{names[sql]}.{_VALUE}") if sql in names else F.expr(sql) for sql in wanted]


def checked(frame: DataFrame, node: Node, context: Context) -> DataFrame:
    """Reject the rows on which an expression of the node would fail; it is evaluated again where it is used."""
    kept, _ = attempted(frame, node, context, fallible_expressions(node) if context.rejects else ())
    return without_attempts(kept)


def without_attempts(frame: DataFrame) -> DataFrame:
    """Drop the columns that attempts have left."""
    left = [name for name in frame.columns if name.startswith(TRIED)]
    return frame.drop(*left) if left else frame


def attempt(value: Column, spark: SparkSession) -> Column:
    """Return a struct of a value, or null if it fails."""
    jvm: Any = spark._jvm
    java = jvm.org.apache.spark.sql
    columns = java.classic.ExpressionUtils
    whole: Any = F.struct(value.alias(_VALUE))
    tried = java.catalyst.expressions.TryEval(columns.expression(whole._jc))
    return F.when(F.spark_partition_id() >= 0, Column(columns.column(tried)))


class Reasons:
    """Why a row was rejected: a number that Spark finds for it, and the text of each number."""

    def __init__(self, tried: DataFrame, names: dict[str, str], schema: Schema) -> None:
        self.texts: list[str] = []
        self.number = F.coalesce(*(self._of(tried, sql, name, schema) for sql, name in names.items()))

    def _of(self, tried: DataFrame, sql: str, name: str, schema: Schema) -> Column:
        first = len(self.texts)
        found = [probe for probe in probes(sql, schema) if _is_analysed(tried, probe)]
        self.texts += [*(probe.reason for probe in found), generic_reason(sql)]
        failed = [attempt(F.expr(probe.sql), tried.sparkSession).isNull() for probe in found]
        numbers = [F.when(one, F.lit(first + place)) for place, one in enumerate(failed)]
        return F.when(F.col(name).isNull(), F.coalesce(*numbers, F.lit(first + len(found))))


def _is_analysed(frame: DataFrame, probe: Probe) -> bool:
    """Whether Spark takes a part of an expression alone; if it does not, the reason names the whole."""
    try:
        return bool(frame.select(F.expr(probe.sql)).columns)
    except (AnalysisException, ParseException):
        return False


def _rejecting(frame: DataFrame, failed: Column, reasons: Reasons, node: Node, context: Context) -> DataFrame:
    """Divert the rows on which an expression failed, each with the text of its reason."""
    name, staging, texts = context.name(node), context.staging, tuple(reasons.texts)
    columns, schema = _shown(node.inputs[0].schema)

    def put(epoch: int, part: str, found: pa.Table) -> None:
        rows = row_dicts(pa.Table.from_struct_array(found.column(_ROW).combine_chunks()).cast(schema))
        why = (texts[number] for number in found.column(_WHY).to_pylist())
        stage_rejected(staging, name, epoch, part, list(zip(why, rows, strict=True)))

    given = F.struct(F.struct(*columns).alias(_ROW), reasons.number.alias(_WHY))
    return divert(frame, F.when(failed, given), put)


def _shown(schema: Schema) -> tuple[list[Column], pa.Schema]:
    """Return the columns of a rejected row, and their types in Arrow; what has none there is shown as text."""
    columns, fields = [], []
    for field in schema:
        try:
            kind, shown = arrow_type(field.type), column(field.name)
        except BadSchema:
            kind, shown = pa.string(), column(field.name).cast("string").alias(field.name)
        columns.append(shown)
        fields.append(pa.field(field.name, kind))
    return columns, pa.schema(fields)
