"""Each operator over changes: after every epoch its result is what DuckDB computes from scratch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadValue, ExpressionFailed
from penstock.incremental.circuit.changes import WEIGHT
from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.state import MemoryState, row_count
from penstock.plan.relations import (
    Aggregate,
    Distinct,
    Except,
    Filter,
    Input,
    Intersect,
    Join,
    Latest,
    Project,
    Relation,
    Top,
    Union,
)
from penstock.schema import Schema
from tests.incremental.circuit.harness import Epoch, check, retraction, table

NAN, INF = float("nan"), float("inf")
A = Input("a", Schema("k int, s string, n bigint, d decimal(10,2), x double, t timestamp"))
B = Input("b", Schema("k int, s string, m bigint, y double"))
START = datetime(2026, 1, 1, tzinfo=UTC)


def a(k: Any, s: Any = "s", n: Any = 1, d: Any = "1.00", x: Any = 1.0, t: int = 0) -> tuple[Any, ...]:
    return k, s, n, None if d is None else Decimal(d), x, START + timedelta(seconds=t)


EPOCHS: list[Epoch] = [
    {
        "a": [(a(1, "x", 5), 1), (a(1, "y", 7, "2.50"), 2), (a(None, None, None, None, None), 1), (a(2, "x", -3), 1)],
        "b": [((1, "x", 10, 0.5), 1), ((3, "z", 30, NAN), 1), ((None, "n", 0, 0.0), 1)],
    },
    {
        "a": [(a(1, "x", 5), -1), (a(3, "", 2**40, "-99999999.99", -0.0), 1), (a(2, "ü", 4, "0.01", NAN), 1)],
        "b": [((2, "x", 20, -0.0), 1), ((1, "x", 10, 0.5), -1)],
    },
    {"a": [], "b": []},
    {
        "a": [(a(1, "y", 7, "2.50"), -1), (a(2, "x", -3), -1), (a(2, "x", -4, "7.77", 2.25, 60), 3)],
        "b": [((1, "x", 10, 0.75), 2), ((2, "x", 20, 0.0), -1), ((None, "n", 0, 0.0), -1)],
    },
    {"b": [((2, None, None, None), 1)]},
]

PAIRS = (("k", "k"),)
AGGREGATES = (
    ("c", "count(*)"),
    ("cn", "count(n)"),
    ("sn", "sum(n)"),
    ("sd", "sum(d)"),
    ("sx", "sum(x)"),
    ("an", "avg(n)"),
    ("ax", "avg(x)"),
    ("lo", "min(n)"),
    ("hi", "max(d)"),
    ("hx", "max(x)"),
    ("lt", "min(t)"),
    ("ls", "min(s)"),
    ("dn", "count(DISTINCT s)"),
    ("by", "max_by(s, n)"),
    ("lb", "min_by(n, x)"),
    ("md", "median(n)"),
    ("pd", "percentile_disc(0.75) WITHIN GROUP (ORDER BY n)"),
    ("p9", "percentile(n, 0.9)"),
    ("ba", "bool_and(n > 0)"),
    ("bo", "bool_or(n > 100)"),
    ("ci", "count_if(n > 4)"),
    ("fi", "sum(n) FILTER (WHERE x > 0e0)"),
    ("ex", "sum(n) + count(*)"),
)
RELATIONS: dict[str, Relation] = {
    "input": A,
    "project": Project(A, (("k", "k"), ("twice", "n * 2"), ("text", "coalesce(s, 'none')"), ("x", "x"))),
    "renamed": Project(A, (("z", "k"), ("k", "n"))),
    "filter": Filter(A, "n > 3 OR s IS NULL"),
    "chain": Filter(Project(Filter(A, "n > -10"), (("k", "k"), ("m", "n + 1"))), "m > 0"),
    "union": Union((Project(A, (("k", "k"), ("s", "s"))), Project(B, (("k", "k"), ("s", "s"))))),
    "distinct": Distinct(Project(A, (("k", "k"), ("s", "s"), ("x", "x")))),
    "except": Except(Project(A, (("k", "k"), ("s", "s"))), Project(B, (("k", "k"), ("s", "s")))),
    "except all": Except(Project(A, (("k", "k"),)), Project(B, (("k", "k"),)), all=True),
    "intersect": Intersect(Project(A, (("k", "k"), ("s", "s"))), Project(B, (("k", "k"), ("s", "s")))),
    "intersect all": Intersect(Project(A, (("k", "k"),)), Project(B, (("k", "k"),)), all=True),
    **{how: Join(A, B, PAIRS, how) for how in ("inner", "left", "right", "full", "semi", "anti")},  # type: ignore[arg-type]
    **{
        f"{how} where": Join(A, B, PAIRS, how, "n < m AND s = s_right")  # type: ignore[arg-type]
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
    "two keys": Join(A, B, (("k", "k"), ("s", "s")), "full"),
    "other names": Join(A, B, (("n", "m"), ("x", "y")), "full"),
    "by double": Join(A, B, (("x", "y"),), "left"),
    "cross": Join(A, B, ()),
    "only a condition": Join(A, B, (), "left", "n < m"),
    "self join": Join(A, A, PAIRS),
    "self semi join": Join(A, Filter(A, "n > 4"), (("s", "s"),), "semi"),
    "aggregate": Aggregate(A, ("k",), AGGREGATES),
    "global": Aggregate(A, (), AGGREGATES),
    "two keys grouped": Aggregate(A, ("s", "k"), (("n", "count(*)"), ("m", "max(x)"))),
    "keys only": Aggregate(A, ("s", "x"), ()),
    "average of maxima": Aggregate(Aggregate(A, ("k",), (("m", "max(n)"),)), (), (("a", "avg(m)"), ("c", "count(*)"))),
    "top": Top(A, ("k",), 1, (("n", "desc", "last"),)),
    "top ranked": Top(A, ("k",), 2, (("d", "asc", "first"), ("x", "desc", "first")), "r"),
    "top by rank": Top(A, ("s",), 2, (("k", "asc", "last"),), "r", "rank"),
    "top by dense rank": Top(A, (), 2, (("x", "desc", "last"),), "r", "dense_rank"),
    "top by expression": Top(A, (), 3, (("n % 3", "asc", "first"), ("s", "desc", "last"))),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_each_epoch_is_what_recomputing_gives_and_nothing_is_left_when_all_is_retracted(name: str) -> None:
    harness = check(RELATIONS[name], EPOCHS)
    harness.folder = None
    harness.run(retraction(harness.history, {}))
    assert sum(harness.state_rows().values()) == harness.rows_that_stay


LOG = Input("log", Schema("k int, s string, n bigint, gone boolean"))


def test_the_last_row_of_each_key_wins() -> None:
    rows = [[(1, "a", 1, False), (2, "b", 2, False), (1, "c", 3, None)], [(None, "n", 4, False), (2, "b", 2, True)]]
    rows += [[(2, "again", 5, False), (2, "b", 6, True), (2, "last", 7, False)], [(1, "c", 3, False)], []]
    epochs: list[Epoch] = [{"log": [(row, 1) for row in one]} for one in rows]
    latest = Latest(LOG, ("k",), ("s", "n"), "gone")
    harness = check(latest, epochs, in_bucket=True)
    harness = check(Aggregate(latest, ("s",), (("n", "sum(n)"),)), epochs)
    harness.folder = None
    harness.run({"log": [((key, "", 0, True), 1) for key in (1, 2, None)]})
    assert sum(harness.state_rows().values()) == 0


def test_a_deletion_from_a_bag_takes_out_one_equal_row_if_there_is_one() -> None:
    circuit, state = Circuit(Latest(LOG, (), ("k",), "gone")), MemoryState()
    rows = [(1, True), (1, False), (1, False), (2, False), (2, True), (2, True), (2, False)]
    log = table(LOG, [((key, "", 0, gone), 1) for key, gone in rows])
    found = {row["k"]: row[WEIGHT] for row in circuit.step({"log": log}, state).to_pylist()}
    assert found == {1: 2, 2: 1}
    more = table(LOG, [((1, "", 0, True), 1)] * 3)
    assert circuit.step({"log": more}, state).to_pylist() == [{"k": 1, WEIGHT: -2}]
    assert row_count(state, range(circuit.stores)) == {0: 1}


@pytest.mark.parametrize(("key", "weight"), [((), -1), ((), 0), (("k",), -1), (("k",), 2)])
def test_rows_of_a_stream_have_the_weight_1(key: tuple[str, ...], weight: int) -> None:
    circuit = Circuit(Latest(LOG, key, ("s",), "gone"))
    with pytest.raises(BadValue, match="latest: a row of a stream has a weight other than 1"):
        circuit.step({"log": table(LOG, [((1, "", 0, False), weight)])}, MemoryState())


def test_an_expression_that_fails_names_operator_expression_and_row() -> None:
    circuit = Circuit(Filter(Project(A, (("r", "100 / n"), ("s", "s"))), "r > 1"))
    rows = table(A, [(a(1, "fine", 5), 1), (a(1, "wrong", 0), 1)])
    with pytest.raises(ExpressionFailed, match=r"project .*100 / n.*'wrong'") as failed:
        circuit.step({"a": rows}, MemoryState())
    assert WEIGHT not in str(failed.value)
    assert "before .view()" in (failed.value.hint or "")


def test_a_sum_that_is_too_large_names_the_aggregate() -> None:
    circuit, state = Circuit(Aggregate(A, (), (("t", "sum(n)"),))), MemoryState()
    rows = table(A, [(a(1, "x", 2**62), 3)])
    with pytest.raises(ExpressionFailed, match=r"aggregate: .sum\(n\). failed on all rows: .* range for bigint"):
        circuit.step({"a": rows}, state)
    grouped = Circuit(Aggregate(A, ("s",), (("t", "sum(n)"),)))
    with pytest.raises(ExpressionFailed, match=r"failed on the group {'s': 'x'}"):
        grouped.step({"a": table(A, [(a(1, "w", 1), 1), (a(1, "x", 2**62), 3)])}, MemoryState())


def test_an_input_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadValue, match="unknown input 'x'"):
        Circuit(A).step({"x": table(A, [])}, MemoryState())


def test_a_circuit_runs_where_the_sql_parser_is_not_loaded(tmp_path: Path) -> None:
    """Spark starts many processes: imports are most of their time."""
    (tmp_path / "circuit").write_bytes(pickle.dumps(Circuit(RELATIONS["aggregate"])))
    code = (
        f"import pickle, sys; pickle.load(open({str(tmp_path / 'circuit')!r}, 'rb')); print('sqlglot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
