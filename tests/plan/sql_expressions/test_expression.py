"""Promise: a wrong expression is refused while the pipeline is built, with the place and the remedy named."""

import pickle
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from penstock.errors import (
    AggregateNotAllowed,
    BadExpression,
    PipelineError,
    UnknownColumn,
    UnknownFunction,
)
from penstock.plan.sql_expressions import functions
from penstock.plan.sql_expressions.expression import aggregate, aggregate_calls, is_aggregate, parse, predicate, scalar
from penstock.schema import Schema

TRADES = Schema(
    "symbol string not null, price double, size bigint, ts timestamp, `order id` int, "
    "venue struct<name:string,city:struct<zip:int>>, legs array<struct<leg:int>>, "
    "tags map<string,int>, xs array<int>"
)


def test_expression_knows_its_text_type_columns_and_nullability() -> None:
    found = scalar("price * size", TRADES, node="select")
    assert (found.sql, found.type) == ("price * size", "double")
    assert (found.columns, found.nullable) == ({"price", "size"}, True)


@pytest.mark.parametrize(
    ("sql", "nullable"),
    [
        ("symbol", False),
        ("(symbol)", False),
        ("price", True),
        ("1", False),
        ("'a'", False),
        ("price is null", False),
        ("upper(symbol)", True),
        ("venue.name", True),
        ("cast(null as int)", True),
    ],
)
def test_nullability_is_inferred_only_where_it_is_evident(sql: str, nullable: bool) -> None:
    assert scalar(sql, TRADES, node="select").nullable is nullable


@pytest.mark.parametrize("sql", ["count(*)", "count(price)", "COUNT(1)"])
def test_a_count_is_never_null(sql: str) -> None:
    assert not aggregate(sql, TRADES, keys=(), node="aggregate").nullable


def test_unknown_column_lists_those_that_exist_and_the_one_meant() -> None:
    with pytest.raises(UnknownColumn) as caught:
        aggregate("sum(pirce * size) / sum(size)", TRADES, keys=("symbol",), node="aggregate 'vwap'")
    first, second = str(caught.value).split("\n")
    assert first == "aggregate 'vwap': unknown column 'pirce' in \"sum(pirce * size) / sum(size)\""
    assert second.startswith("  columns here: symbol, price, size")
    assert second.endswith("did you mean 'price'?")


def test_columns_are_case_sensitive_and_functions_are_not() -> None:
    with pytest.raises(UnknownColumn, match="'Price'"):
        scalar("Price", TRADES, node="select")
    assert scalar("UpPer(symbol)", TRADES, node="select").type == "string"


def test_quoted_names_are_columns() -> None:
    assert scalar("`order id` + 1", TRADES, node="select").columns == {"order id"}


def test_fields_of_structs_are_checked_at_every_depth() -> None:
    assert scalar("venue.city.zip", TRADES, node="select").type == "int"
    assert scalar("legs[0].leg", TRADES, node="select").columns == {"legs"}
    with pytest.raises(UnknownColumn, match="unknown field 'zap' of 'venue'") as caught:
        scalar("venue.city.zap", TRADES, node="select")
    assert caught.value.hint == "fields here: zip      did you mean 'zip'?"
    with pytest.raises(BadExpression, match="'price' is double and has no field 'x'"):
        scalar("price.x", TRADES, node="select")


def test_variables_of_lambdas_are_not_columns() -> None:
    found = scalar("transform(xs, (price, n) -> price + n + size)", TRADES, node="select")
    assert (found.type, found.columns) == ("array<bigint>", {"xs", "size"})


def test_a_variable_ends_with_its_lambda() -> None:
    with pytest.raises(UnknownColumn, match="'z'"):
        scalar("transform(xs, z -> z)[z]", TRADES, node="select")


def test_unknown_function_names_at_most_five_that_are_near() -> None:
    with pytest.raises(UnknownFunction, match=r"unknown function 'summ' in \"summ\(size\)\"") as caught:
        scalar("summ(size)", TRADES, node="select")
    assert "sum" in str(caught.value.hint)
    assert str(caught.value.hint).count(",") <= 4


def test_unknown_function_like_none_has_no_hint() -> None:
    with pytest.raises(UnknownFunction) as caught:
        scalar("qqqqqqqqzzzz(size)", TRADES, node="select")
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "an empty expression"),
        ("  ", "an empty expression"),
        ("price; size", "more than one expression"),
        ("price;", "more than one expression"),
        ("sum(price", r"expected \), at position 5"),
        ("price +", "something is missing"),
        ("price size", "this was not expected, at position 7"),
        ("price as p", "this was not expected, at position 7"),
        ("price, size", "this was not expected, at position 6"),
        ("select 1", "this was not expected, at position 1"),
        ("concat(symbol,,symbol)", "an argument is missing, at position 15"),
        ("'open", "cannot read"),
        ("price -> size", "not understood"),
        ("upper(symbol, symbol)", r"upper\(...\) takes 1 argument, not 2"),
        ("price + xs", "'price \\+ xs' does not take double, array<int>"),
        ("a.b(price)", "bare name|unknown function"),
    ],
)
def test_what_is_not_spark_sql_is_refused_with_its_place(sql: str, said: str) -> None:
    with pytest.raises((BadExpression, UnknownFunction), match=said) as caught:
        scalar(sql, TRADES, node="filter")
    assert caught.value.node == "filter"


def test_a_syntax_error_points_at_the_place() -> None:
    with pytest.raises(BadExpression) as caught:
        scalar("price size", TRADES, node="filter")
    assert caught.value.hint == "price size\n        ^ here"


@pytest.mark.parametrize("sql", [5, None, b"price", lambda row: row])
def test_what_is_not_a_string_is_refused(sql: object) -> None:
    with pytest.raises(BadExpression, match="is not an SQL expression"):
        scalar(sql, TRADES, node="filter")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("(select 1)", "a subquery"),
        ("size in (select 1)", "a subquery"),
        ("exists(select 1)", "a subquery"),
        ("*", r"'\*'"),
        ("struct(*)", r"'\*'"),
        ("venue.*", r"'\*'"),
        ("row_number() over (order by price)", "OVER"),
        ("rank()", "the window function rank"),
        ("explode(xs)", "makes many rows of one"),
        ("json_tuple(symbol, 'a')", "makes many rows of one"),
        ("window(ts, '1 minute')", "cannot be used in a stream"),
    ],
)
def test_what_is_not_over_one_row_is_refused(sql: str, said: str) -> None:
    with pytest.raises(BadExpression, match=said) as caught:
        scalar(sql, TRADES, node="select")
    assert caught.value.hint


@pytest.mark.parametrize(
    "sql", ["sum(price)", "1 + count(*)", "coalesce(MAX(size), 0)", "count(*) filter (where size > 1)"]
)
def test_an_aggregate_has_no_place_where_rows_are_handled_alone(sql: str) -> None:
    with pytest.raises(AggregateNotAllowed, match="is an aggregate"):
        scalar(sql, TRADES, node="select")


def test_a_condition_must_be_boolean() -> None:
    assert predicate("size > 0 and symbol like 'A%'", TRADES, node="filter").type == "boolean"
    with pytest.raises(BadExpression, match='a condition must be boolean, and "size" is bigint'):
        predicate("size", TRADES, node="filter")


def test_a_group_needs_an_aggregate() -> None:
    with pytest.raises(AggregateNotAllowed, match='no aggregate in "price"'):
        aggregate("price", TRADES, keys=("symbol",), node="aggregate")


def test_columns_outside_an_aggregate_must_be_keys() -> None:
    assert aggregate("concat(symbol, max(size))", TRADES, keys=("symbol",), node="aggregate").type == "string"
    with pytest.raises(AggregateNotAllowed, match="column 'price' has many values per group") as caught:
        aggregate("price * max(size)", TRADES, keys=("symbol",), node="aggregate")
    assert caught.value.hint == "put it into an aggregate, such as max(price), or into key_by(...)"


def test_columns_of_a_filter_clause_and_of_an_order_are_inside_the_aggregate() -> None:
    assert aggregate("sum(size) filter (where price > 1)", TRADES, keys=(), node="aggregate").type == "bigint"
    ordered = "percentile_cont(0.5) within group (order by price)"
    assert aggregate(ordered, TRADES, keys=(), node="aggregate").columns == {"price"}


def test_aggregates_cannot_be_nested() -> None:
    with pytest.raises(AggregateNotAllowed, match=r"max\(...\) inside sum\(...\)"):
        aggregate("sum(max(size))", TRADES, keys=(), node="aggregate")


@pytest.mark.parametrize(
    ("sql", "instead"),
    [
        ("first(price)", "min_by(price, ts)"),
        ("last_value(price)", "max_by(price, ts)"),
        ("any_value(price)", "min_by(price, ts)"),
        ("LAST(price) ignore nulls", "max_by(price, ts)"),
    ],
)
def test_what_depends_on_the_order_of_arrival_is_refused(sql: str, instead: str) -> None:
    with pytest.raises(AggregateNotAllowed, match="order of arrival") as caught:
        aggregate(sql, TRADES, keys=(), node="aggregate")
    assert instead in str(caught.value.hint)


@pytest.mark.parametrize("sql", ["count(distinct price)", "count(DISTINCT price, size)", "max(DISTINCT price)"])
def test_distinct_values_can_be_counted(sql: str) -> None:
    assert aggregate(sql, TRADES, keys=(), node="aggregate").type in ("bigint", "double")


@pytest.mark.parametrize("sql", ["sum(DISTINCT price)", "collect_list(distinct price)"])
def test_other_distinct_aggregates_are_refused_with_what_can_be_streamed(sql: str) -> None:
    with pytest.raises(AggregateNotAllowed, match="cannot be streamed") as caught:
        aggregate(sql, TRADES, keys=(), node="aggregate")
    assert caught.value.hint == "count(DISTINCT price) can; or deduplicate(...) the rows first"


@pytest.mark.parametrize(
    "sql", ["rand()", "uuid()", "shuffle(xs)", "monotonically_increasing_id()", "input_file_name()"]
)
def test_what_a_replayed_epoch_would_change_is_refused(sql: str) -> None:
    with pytest.raises(BadExpression) as caught:
        scalar(sql, TRADES, node="select")
    assert "a replayed epoch would get another value" in str(caught.value.hint)


@pytest.mark.parametrize(
    "sql", ["rand(7)", "uuid(7)", "shuffle(xs, 7)", "current_timestamp()", "now()", "current_date"]
)
def test_what_a_replayed_epoch_repeats_is_allowed(sql: str) -> None:
    assert scalar(sql, TRADES, node="select").columns <= {"xs"}


def test_a_type_that_cannot_be_inferred_is_never_guessed() -> None:
    with pytest.raises(BadExpression, match="cannot infer the type of to_number") as caught:
        scalar("to_number(symbol, '999')", TRADES, node="select")
    assert caught.value.hint == "wrap it in cast(to_number(symbol, '999') as TYPE)"
    assert scalar("cast(to_number(symbol, '999') as int)", TRADES, node="select").type == "int"


def test_a_cast_around_an_unknown_type_still_checks_columns() -> None:
    with pytest.raises(UnknownColumn, match="'sybmol'"):
        scalar("cast(to_number(sybmol, '999') as int)", TRADES, node="select")
    with pytest.raises(UnknownColumn, match="'sizzle'"):
        scalar("cast(to_number(symbol, '9') + sizzle as int)", TRADES, node="select")


@pytest.mark.parametrize("sql", ["interval 1 hour", "null", "parse_json(symbol)", "array()"])
def test_a_type_that_no_column_can_hold_is_refused(sql: str) -> None:
    with pytest.raises(BadExpression, match="which no column can hold") as caught:
        scalar(sql, TRADES, node="select")
    assert "cast(" in str(caught.value.hint)


def test_errors_survive_pickling() -> None:
    with pytest.raises(UnknownColumn) as caught:
        scalar("nope", TRADES, node="select")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


WORDS = """
price size symbol xs venue tags ts . , ( ) [ ] + - * / % = < > -> :: 1 2.5 'a' x null and not in is like case
when then else end cast as int interval hour sum count transform z map struct distinct filter where over
; ` ? @ $
""".split()  # noqa: SIM905 a list of sixty quoted words does not read


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_either_typed_or_refused(sql: str) -> None:
    with suppress(PipelineError):
        assert scalar(sql, TRADES, node="select").columns <= set(TRADES.names)
    with suppress(PipelineError):
        assert aggregate(sql, TRADES, keys=("symbol",), node="aggregate").columns <= set(TRADES.names)


def test_aggregate_calls_are_found_outermost_first_in_a_tree_to_translate() -> None:
    tree = parse("sum(price * size) / count(*) + upper(symbol)", node="aggregate")
    assert [type(call) for call in aggregate_calls(tree)] == [exp.Sum, exp.Count]


@pytest.mark.parametrize("name", [name for name in sorted(functions.names()) if not functions.is_window(name)])
def test_trees_to_translate_agree_with_the_registry_on_what_aggregates(name: str) -> None:
    count = next(n for n in range(9) if functions.accepts(name, n) and (n or not functions.accepts(name, 1)))
    sql = f"{name}({', '.join(['price'] * count)})"
    try:
        tree = parse(sql, node="aggregate")
    except BadExpression:
        pytest.skip("sqlglot wants other arguments")
    assert (tree in aggregate_calls(tree)) is is_aggregate(name), repr(tree)
