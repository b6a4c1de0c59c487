"""The schema of JSON documents by a sample of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.schema import Schema
from penstock.sql_console.inference import infer_schema


def inferred(*documents: Any) -> str | None:
    found = infer_schema(json.dumps(document).encode() for document in documents)
    return None if found is None else found.ddl


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "bigint"),
        ([1, 2.5, None], "double"),
        ([2**63], "double"),
        ([True, None], "boolean"),
        (["a", None], "string"),
        (["2026-01-01T00:00:00Z", "2026-01-01 10:00:00.5+01:00"], "timestamp"),
        (["2026-01-01T00:00:00Z", "soon"], "string"),
        ([None], "string"),
        ([[1], [2.5], []], "array<double>"),
        ([[]], "array<string>"),
        ([{"a": 1}, {"b": "x"}], "struct<a:bigint,b:string>"),
        ([1, 2, "x"], "bigint"),
        ([{}], "string"),
    ],
)
def test_a_column_has_the_type_of_its_values(values: list[Any], kind: str) -> None:
    assert inferred(*({"x": value} for value in values)) == Schema(f"x {kind}").ddl


def test_columns_are_those_of_all_documents_in_the_order_in_which_they_come() -> None:
    assert inferred({"a": 1}, {"b": "x", "a": 2}) == "a bigint, b string"


def test_names_that_differ_in_case_only_are_one_column() -> None:
    assert inferred({"a": 1, "A": "x"}) == "a bigint"


@pytest.mark.parametrize("documents", [[1, 2], ["x"], [], [{}], [{"a": 1}, 2, 3]])
def test_what_is_mostly_no_objects_has_no_columns(documents: list[Any]) -> None:
    assert inferred(*documents) is None


def test_what_is_no_json_is_left_out() -> None:
    assert infer_schema([b'{"a": 1}', b'{"a": 2}', b"\xff", None, b"[" * 100_000]) == Schema("a bigint")
