"""Promise: an error of a run names the node, the expression or function, the value and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

import penstock as ps
from penstock.errors import ExpressionFailed, FunctionFailed, PenstockError, PipelineError, SourceFailed, UnknownTopic
from penstock.settings import Settings
from penstock.spark.epochs.spark_errors import translate
from penstock.spark.tasks.staging import Staging
from penstock.storage.folders import folder

BIG = 2**63 - 1
ROW = f"the input row was {{'k': 'a', 'v': {BIG}"
Make = Callable[[ps.Stream], ps.Stream]


def numbers(*values: int) -> ps.Stream:
    items = [{"k": "a", "v": value, "words": ["x"], "s": f"n{value}"} for value in values]
    return ps.from_items(items, "k string, v bigint, words array<string>, s string").named("numbers")


def raises(row: dict[str, Any]) -> dict[str, Any]:
    row["v"] = -1
    return {"k": row["nope"]}


def changes(row: dict[str, Any]) -> dict[str, Any]:
    row["v"] = "x"
    return row


def broken() -> Any:
    message = "no client today"
    raise RuntimeError(message)


class Wrong(ps.Process):
    output = "k string"

    def on_row(self, row: dict[str, Any], ctx: ps.Context) -> Any:
        row["v"] = -1
        return 7


CASES: list[tuple[str, str, Make, type[PenstockError], list[str]]] = [
    (
        "a sum that overflows, in Spark",
        "spark",
        lambda rows: rows.union(rows).key_by("k").aggregate(total="sum(v)").named("totals"),
        ExpressionFailed,
        ["aggregate 'totals': \"sum(v)\" failed", "overflow", "try_sum"],
    ),
    (
        "a sum that overflows, natively",
        "auto",
        lambda rows: rows.union(rows).key_by("k").aggregate(total="sum(v)").named("totals"),
        ExpressionFailed,
        ["aggregate 'totals': \"sum(v)", "failed", "try_sum"],
    ),
    (
        "a division by zero inside an aggregate, natively",
        "auto",
        lambda rows: rows.key_by("k").aggregate(total=f"sum(10 / (v - {BIG}))").named("totals"),
        ExpressionFailed,
        [
            "aggregate 'totals'",
            f"10 / (v - {BIG})",
            "division by zero",
            f"the input row was {{'k': 'a', 'v': {BIG}",
            "try_divide",
        ],
    ),
    (
        "a cast, natively",
        "auto",
        lambda rows: rows.select("k", n="cast(s as int)").named("casts"),
        ExpressionFailed,
        ["select 'casts'", "cast(s as int)", "cannot be cast to int", f"'s': 'n{BIG}'", "rejected_to"],
    ),
    (
        "an index, in Spark",
        "spark",
        lambda rows: rows.select("k", w="element_at(words, 7)").named("picks"),
        ExpressionFailed,
        ["select 'picks'", "element_at(words, 7)", "The index 7 is out of bounds", "try_element_at"],
    ),
    (
        "a function that raises",
        "auto",
        lambda rows: rows.map(raises, "k string").named("calls"),
        FunctionFailed,
        [
            "map 'calls': raises raised KeyError: 'nope' at test_run_errors.py:",
            '(return {"k": row["nope"]})',
            f"the input row was {{'k': 'a', 'v': {BIG}",
        ],
    ),
    (
        "a function that changes its row and returns a wrong type",
        "auto",
        lambda rows: rows.map(changes).named("calls"),
        FunctionFailed,
        [
            "map 'calls': changes returned what does not fit: column 'v' is bigint, and was given 'x' (str)",
            f"the input row was {{'k': 'a', 'v': {BIG}",
        ],
    ),
    (
        "a flat_map that returns one row",
        "auto",
        lambda rows: rows.flat_map(lambda row: {"k": "a"}, "k string").named("many"),
        FunctionFailed,
        ["flat_map 'many'", "it returned {'k': 'a'}, which is not a list of rows: return [row], or yield rows"],
    ),
    (
        "a helper that cannot be made",
        "auto",
        lambda rows: rows.map(lambda row, helper: row, using=broken).named("helped"),
        FunctionFailed,
        ["map 'helped': using=broken raised RuntimeError: no client today at test_run_errors.py:", "once per worker"],
    ),
    (
        "a process function that returns no rows",
        "auto",
        lambda rows: rows.key_by("k").process(Wrong()).named("steps"),
        FunctionFailed,
        [
            "process 'steps': Wrong.on_row emitted an invalid row: it returned 7",
            f"the input row was {{'k': 'a', 'v': {BIG}",
            "yield rows",
        ],
    ),
]


# Their like are in short: another failure of a native aggregate, and another function that returns a wrong value.
SLOW = {"a sum that overflows, natively", "a flat_map that returns one row"}


@pytest.mark.parametrize(
    ("lane", "make", "kind", "texts"),
    [pytest.param(*case, id=title, marks=[pytest.mark.slow] if title in SLOW else []) for title, *case in CASES],
)
def test_an_error_of_a_run_names_node_cause_value_and_remedy(
    lane: Any, make: Make, kind: type[PenstockError], texts: list[str], settings: Settings, tmp_path: Path
) -> None:
    pipeline = ps.Pipeline("fails", make(numbers(BIG)).to(ps.callback(lambda epoch, table: None)).named("out"))
    with pytest.raises(kind) as raised:
        pipeline.run(until="drained", checkpoint=tmp_path / "c", settings=replace(settings, lane=lane))
    text = str(raised.value)
    for part in texts:
        assert part in text
    assert "an expression" not in text
    assert "Traceback" not in text
    assert "Use TRY(" not in text
    assert raised.value.exit_code == 1


def translated(text: str, tmp_path: Path) -> PenstockError:
    graph = ps.Pipeline("p", numbers(1).to(ps.collect())).graph
    return translate(AnalysisException(text), graph, Staging(folder(tmp_path)), -1)


def test_what_a_source_raises_while_spark_opens_it_is_the_error(tmp_path: Path) -> None:
    said = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source `penstock-trades`: "
        'Traceback (most recent call last):\n  File "x.py", line 3, in partitions\n'
    )
    own = translated(f"{said}penstock.errors.UnknownTopic: there is no topic 't'\n  topics there: u", tmp_path)
    assert isinstance(own, UnknownTopic)
    assert str(own) == "read 'trades': there is no topic 't'\n  topics there: u"
    other = translated(f"{said}OSError: [Errno 5] Input/output error", tmp_path)
    assert isinstance(other, SourceFailed)
    assert "the source cannot be opened: OSError: [Errno 5]" in str(other)


def test_what_spark_refuses_in_a_plan_is_an_error_of_the_pipeline(tmp_path: Path) -> None:
    error = translated("[UNSUPPORTED_FEATURE.X] Maps cannot be keys. SQLSTATE: 0A000;\nplan", tmp_path)
    assert isinstance(error, PipelineError)
    assert "Spark refuses the pipeline: Maps cannot be keys" in str(error)
    assert error.exit_code == 2
