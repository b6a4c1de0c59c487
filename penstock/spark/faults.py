"""Spark's errors as ours: what failed, at which node, and what to do next."""

from __future__ import annotations

import os
import re

from py4j.protocol import Py4JError, Py4JNetworkError

from penstock import errors
from penstock.errors import CheckpointDamaged, DiskFull, ExpressionFailed, PenstockError, SparkFailed, StoreFailed
from penstock.masking import masked_text
from penstock.plan.graph import Graph
from penstock.plan.node import Node
from penstock.plan.row_expressions import row_expressions
from penstock.plan.stateful import Aggregate
from penstock.spark.checkpoints.checkpoint import ANEW
from penstock.spark.epochs.staging import PLANNING, Staging

_TRY = {
    "DIVIDE_BY_ZERO": "use try_divide(a, b), or nullif(b, 0): they give null",
    "REMAINDER_BY_ZERO": "use try_mod(a, b): it gives null",
    "CAST_INVALID_INPUT": "use try_cast(x as TYPE): it gives null",
    "CAST_OVERFLOW": "use try_cast(x as TYPE): it gives null",
    "ARITHMETIC_OVERFLOW": "use try_add, try_subtract, try_multiply or try_sum: they give null",
    "NUMERIC_VALUE_OUT_OF_RANGE": "use try_cast to a wider decimal",
    "CANNOT_PARSE_TIMESTAMP": "use try_to_timestamp(text, format): it gives null",
    "CANNOT_PARSE_DATE": "use try_to_date(text, format): it gives null",
    "INVALID_ARRAY_INDEX": "use get(array, index): it gives null",
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT": "use try_element_at(array, index): it gives null",
    "INVALID_URL": "use try_url_decode or try_parse_url: they give null",
    "CONVERSION_INVALID_INPUT": "use the try_ form of the function: it gives null",
}

# What Spark says of files of its checkpoint that are damaged or gone.
_STATE = ("CANNOT_LOAD_STATE_STORE", "STREAMING_CHECKPOINT_", "STATE_STORE_INVALID_", "ChecksumException")
_STORES = ("org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.")


def translate(error: BaseException, graph: Graph, staging: Staging, epoch: int) -> PenstockError:
    """Return an error as the user should meet it."""
    if isinstance(error, PenstockError):
        return error
    left = staging.error(epoch) or staging.error(PLANNING) or staging.planned_error(epoch)
    if left is not None:
        kind, message, node, hint, transient = left
        made: PenstockError = getattr(errors, kind)(message, node=node, hint=hint, transient=transient)
        return made
    if (lost := lost_jvm(error)) is not None:
        return lost
    text = str(error)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        message = "no space is left on the disk"
        return DiskFull(message, hint="free some space and run again: the job goes on from its checkpoint")
    if "Python worker exited unexpectedly" in text:
        message = "a Python worker of Spark died: it was killed, ran out of memory, or ended by itself"
        hint = "run again: the job goes on from its checkpoint; if it lacks memory, lower the parallelism"
        return SparkFailed(message, hint=hint, transient=True)
    if any(kind in text for kind in _STATE):
        message = f"Spark cannot read its part of the checkpoint: {_cause(text)[:500]}"
        return CheckpointDamaged(message, hint=f"`penstock checkpoints` shows what is damaged; {ANEW}")
    if any(library in text for library in _STORES):
        message = f"Spark cannot use the store of its checkpoint: {masked_text(_cause(text))[:300]}"
        return StoreFailed(message, hint="run again when the store is well: the job goes on from there", transient=True)
    return _expression(text, graph) or _unknown(text)


def lost_jvm(error: BaseException) -> SparkFailed | None:
    """Return the error of a JVM that is gone, if this one tells of it.

    Py4J says so in three ways; the last one is an error in a call that names no Java exception.
    """
    silent = type(error) is Py4JError and "Trace:" not in str(error)
    if not (silent or isinstance(error, (Py4JNetworkError, ConnectionError))):
        return None
    message = "Spark's JVM is gone: it was killed, or ran out of memory"
    hint = "run again: the job goes on from its checkpoint; if it lacks memory, raise spark.driver.memory"
    return SparkFailed(message, hint=hint, transient=True)


def _expression(text: str, graph: Graph) -> ExpressionFailed | None:
    found = next((re.search(rf"\[({name})(?:\.\w+)?\]\s*(.*)", text) for name in _TRY if f"[{name}" in text), None)
    fragment = _fragment(text)
    where = [(node, sql) for node in graph.nodes for sql in _expressions(node) if fragment and fragment in sql]
    if found is None and where:
        # Spark points at the SQL: whatever its error is called, an expression of ours raised it.
        found = re.search(r"\[([A-Z][A-Z_]+)(?:\.\w+)?\]\s*(.*)", text)
    if found is None:
        return None
    node, sql = where[0] if where else (None, fragment or "an expression")
    reason = re.split(r"\s+(?:Use|If necessary|To return|Verify)\b", found[2])[0]
    message = f'"{sql}" failed on a row: {reason}'
    label = graph.label(node) if node is not None else None
    hint = _TRY.get(found[1], "guard it: CASE WHEN ... THEN ... END")
    if (
        node is not None
        and graph.rejected_to is None
        and any((fragment or sql) in one for one in row_expressions(node))
    ):
        hint += "; or send such rows aside: Pipeline(..., rejected_to=sink)"
    return ExpressionFailed(message, node=label, hint=hint)


def _fragment(text: str) -> str | None:
    """Return the SQL that Spark points at."""
    found = re.search(r"== SQL[^=]*==\n(.*)\n( *)(\^+)", text)
    if found is None:
        return None
    return found[1][len(found[2]) : len(found[2]) + len(found[3])]


def _expressions(node: Node) -> list[str]:
    aggregates = [what for _, what in node.aggregates if isinstance(what, str)] if isinstance(node, Aggregate) else []
    return [*aggregates, *row_expressions(node)]


def _unknown(text: str) -> SparkFailed:
    if os.environ.get("PENSTOCK_DEBUG"):
        return SparkFailed(f"Spark failed: {masked_text(text)}")
    message = f"Spark failed: {masked_text(_cause(text))[:500]}"
    return SparkFailed(message, hint="run it again with PENSTOCK_DEBUG=1 to see all that Spark said")


def _cause(text: str) -> str:
    """Return the line that says why: the innermost exception, not the wrappers around it."""
    said = [
        line.strip() for line in text.splitlines() if re.match(r"\s*([\w.]+(Error|Exception)|Caused by)\b.*: ", line)
    ]
    return said[-1] if said else text.strip().splitlines()[0]
