"""Spark's errors translated: what failed, at which node, and what to do next."""

from __future__ import annotations

import errno
import os
import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException

from penstock import errors
from penstock.errors import (
    CheckpointDamaged,
    DiskFull,
    ExpressionFailed,
    PenstockError,
    PipelineError,
    SourceFailed,
    SparkFailed,
    StoreFailed,
)
from penstock.masking import masked_text
from penstock.plan.graph import Graph
from penstock.plan.operators.node import Node
from penstock.plan.operators.row_expressions import row_expressions
from penstock.spark.lowering.job_storage import START_OVER
from penstock.spark.tasks.staging import PLANNING, Staging

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
_WRAPPERS = ("FOREACH_BATCH_USER_FUNCTION_ERROR", "STREAM_FAILED", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED")
# What Spark reports for damaged or missing files of its checkpoint.
_STATE = (
    "CANNOT_LOAD_STATE_STORE",
    "STREAMING_CHECKPOINT_",
    "STATE_STORE_INVALID_",
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
    "ChecksumException",
)
_OF_SOURCE = "PYTHON_DATA_SOURCE_ERROR"
_STORES = ("org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.")


def translate(error: BaseException, graph: Graph, staging: Staging, epoch: int) -> PenstockError:
    """Return an error as the user should see it."""
    if isinstance(error, PenstockError):
        return error
    staged = staging.error(epoch) or staging.error(PLANNING) or staging.planned_error(epoch)
    if staged is not None:
        kind, message, node, hint, transient = staged
        made: PenstockError = getattr(errors, kind)(message, node=node, hint=hint, transient=transient)
        return made
    if (lost := lost_jvm(error)) is not None:
        return lost
    text = str(error)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        message = "no space is left on the disk"
        return DiskFull(message, hint="free some space and run again: the job resumes from its checkpoint")
    if "Python worker exited unexpectedly" in text:
        message = "a Python worker of Spark died: it was killed, ran out of memory, or ended by itself"
        hint = "run again: the job resumes from its checkpoint; if it lacks memory, lower the parallelism"
        return SparkFailed(message, hint=hint, transient=True)
    if any(kind in text for kind in _STATE):
        message = f"Spark cannot read its part of the checkpoint: {_cause(text)[:500]}"
        return CheckpointDamaged(message, hint=f"`penstock checkpoints` shows what is damaged; {START_OVER}")
    if any(library in text for library in _STORES):
        message = f"Spark cannot use the store of its checkpoint: {masked_text(_cause(text))[:300]}"
        return StoreFailed(
            message, hint="run again when the store can be reached: the job resumes from its checkpoint", transient=True
        )
    if _OF_SOURCE in text:
        return _of_source(text)
    if isinstance(error, AnalysisException):
        return _refused(text)
    return _expression(text, graph) or _unknown(text)


def _of_source(text: str) -> PenstockError:
    """Return what a source of ours raised when Spark opened it; Spark shows only the traceback."""
    named = re.search(r"penstock-([\w.-]+)", text)
    node = f"read '{named[1]}'" if named else None
    own = re.findall(r"^penstock\.errors\.(\w+): (.+)((?:\n  .+)*)", text, re.MULTILINE)
    if own and isinstance(kind := getattr(errors, own[-1][0], None), type) and issubclass(kind, PenstockError):
        _, message, more = own[-1]
        made: PenstockError = kind(masked_text(message), node=node, hint=masked_text(more).strip() or None)
        return made
    message = f"the source cannot be opened: {masked_text(_cause(text))[:500]}"
    return SourceFailed(message, node=node, hint="PENSTOCK_DEBUG=1 shows where it was raised")


def _refused(text: str) -> PenstockError:
    """Return the error of a plan that Spark refuses, though the checks of the builder passed it."""
    _, reason = _condition(text)
    message = f"Spark refuses the pipeline: {masked_text(reason or _cause(text))[:500]}"
    return PipelineError(message, hint="change what it names; PENSTOCK_DEBUG=1 shows Spark's plan")


def lost_jvm(error: BaseException) -> SparkFailed | None:
    """Return the error of a lost JVM, if this error means that.

    Py4J reports it in three ways; the last one is an error in a call that names no Java exception.
    """
    silent = type(error) is Py4JError and "Trace:" not in str(error)
    if not (silent or isinstance(error, (Py4JNetworkError, ConnectionError))):
        return None
    message = "Spark's JVM exited: it was killed, or ran out of memory"
    hint = "run again: the job resumes from its checkpoint; if it lacks memory, raise spark.driver.memory"
    return SparkFailed(message, hint=hint, transient=True)


def _expression(text: str, graph: Graph) -> ExpressionFailed | None:
    condition, reason = _condition(text)
    fragment = _fragment(text)
    where = [(node, sql) for node in graph.nodes for sql in _expressions(node) if fragment and fragment in sql]
    if condition not in _TRY and not where:
        # Where Spark points at SQL of ours, it is the expression that raised, whatever the error is called.
        return None
    hint = _TRY.get(condition, "guard it: CASE WHEN ... THEN ... END")
    if not where:
        label, what = _suspects(graph, condition)
        return ExpressionFailed(f"{what}: {reason}", node=label, hint=hint)
    node, sql = where[0]
    if graph.rejected_to is None and any((fragment or sql) in one for one in row_expressions(node)):
        hint += "; or reject such rows, which shows them: Pipeline(..., rejected_to=sink)"
    return ExpressionFailed(f'"{sql}" failed on a row: {reason}', node=graph.label(node), hint=hint)


def _condition(text: str) -> tuple[str, str]:
    """Return Spark's name of what went wrong in the end, and its first sentence about it; not those of wrappers."""
    found = re.findall(r"\[([A-Z][A-Z_]+)(?:\.\w+)*\]\s*([^\n]*)", text)
    known = [one for one in found if one[0] in _TRY]
    inner = [one for one in found if one[0] not in _WRAPPERS]
    name, said = (known or inner or found or [("", "")])[-1 if not known else 0]
    return name, re.split(r"\s+(?:Use|If necessary|To return|Verify)\b| SQLSTATE", said)[0]


def _suspects(graph: Graph, condition: str) -> tuple[str | None, str]:
    """Return the node, and which expression may have failed, where Spark does not say: sums, and what uses them."""
    summed = [
        (node, sql)
        for node in graph.nodes
        for sql in _expressions(node)
        if not condition.startswith("ARITHMETIC") or re.search(r"\b(sum|avg|mean|count)\s*\(|[-+*]", sql)
    ]
    labels = list(dict.fromkeys(graph.label(node) for node, _ in summed))
    texts = list(dict.fromkeys(f'"{sql}"' for _, sql in summed))
    what = f"{texts[0]} failed" if len(texts) == 1 else f"one of {', '.join(texts) or 'the expressions'} failed"
    return (labels[0] if len(labels) == 1 else None), what + " on the rows of a group" * condition.startswith(
        "ARITHMETIC"
    )


def _fragment(text: str) -> str | None:
    """Return the SQL that Spark points at."""
    found = re.search(r"== SQL[^=]*==\n(.*)\n( *)(\^+)", text)
    if found is None:
        return None
    return found[1][len(found[2]) : len(found[2]) + len(found[3])]


def _expressions(node: Node) -> list[str]:
    return [*node.aggregate_sql, *row_expressions(node)]


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


def is_full(error: BaseException) -> bool:
    """Return whether a disk is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
