from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from penstock.connectors.catalog import source_from_spec
from penstock.connectors.generators.items import ItemSource
from penstock.contracts import Rejected
from penstock.errors import BadSchema

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Trade:
    symbol: str
    price: float


def items(source, first=0, last=None):
    end = source.latest({}, None)["0"] if last is None else last
    return [
        part
        for item in source.read("0", first, end)
        for part in ([item] if isinstance(item, Rejected) else item.to_pylist())
    ]


def test_rows_are_dicts_dataclasses_or_tuples():
    source = ItemSource([{"symbol": "A", "price": 1}, Trade("B", 2.5), ("C", None), {"symbol": "D"}], Trade)
    assert [tuple(row.values()) for row in items(source) if isinstance(row, dict)] == [("A", 1.0), ("B", 2.5)]
    assert [row.position for row in items(source) if isinstance(row, Rejected)] == ["items:2", "items:3"]


def test_payloads_are_parsed_and_bad_ones_rejected_in_their_place():
    source = ItemSource([b'{"a": 1}', b"{", {"a": 3}, b'{"a":\n4}', b"", b'{"a":1}{"a":2}'], "a bigint", "log")
    found = items(source)
    assert [row["a"] if isinstance(row, dict) else row.position for row in found] == [
        *(1, "log:1", 3, 4),
        *("log:4", "log:5"),
    ]
    assert found[1].raw == b"{"


def test_null_where_none_may_be_is_rejected_with_the_row():
    source = ItemSource([{"a": None, "b": 1}, {"a": 1}], "a bigint not null, b bigint")
    bad, good = items(source)
    assert bad.reason == "column a: null, but it is declared not null"
    assert json.loads(bad.raw) == {"a": None, "b": 1}
    assert good == {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 1.5),
        ("bigint", 1.0),
        ("bigint", True),
        ("bigint", "1"),
        ("tinyint", 128),
        ("double", "1.5"),
        ("double", True),
        ("string", 1),
        ("string", b"x"),
        ("boolean", 1),
        ("timestamp", datetime(2026, 1, 1)),  # noqa: DTZ001 (what is refused)
        ("timestamp", 1767268800),
        ("timestamp", "noon"),
        ("timestamp_ntz", NOON),
        ("date", NOON),
        ("decimal(4,2)", Decimal("123.45")),
        ("decimal(4,2)", 1.5),
        ("array<bigint>", 1),
        ("array<bigint>", ["x"]),
        ("struct<x:bigint>", {"y": 1}),
        ("map<string,bigint>", [1]),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_row_number(kind, value):
    with pytest.raises(BadSchema, match=r"items: row 1, column 'a': .* is not a "):
        ItemSource([{"a": None}, {"a": value}], {"a": kind})


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("double", 1, 1.0),
        ("timestamp", NOON, NOON),
        ("timestamp", "2026-01-01T12:00Z", NOON),
        ("date", date(2026, 1, 1), date(2026, 1, 1)),
        ("decimal(4,2)", Decimal("1.5"), Decimal("1.50")),
        ("array<double>", [1, None], [1.0, None]),
        ("struct<x:bigint,y:string>", {"x": 1}, {"x": 1, "y": None}),
        ("map<string,bigint>", {"k": 1}, [("k", 1)]),
        ("binary", b"x", b"x"),
    ],
)
def test_values_are_kept(kind, value, result):
    assert items(ItemSource([(value,)], {"a": kind})) == [{"a": result}]


def test_an_unknown_column_and_a_shapeless_row_are_refused():
    with pytest.raises(BadSchema, match=r"row 0 has an unknown column 'pirce'(.|\n)*did you mean 'price'"):
        ItemSource([{"pirce": 1}], Trade)
    with pytest.raises(BadSchema, match="row 0 is 5, which does not fit"):
        ItemSource([5], Trade)
    with pytest.raises(BadSchema, match="a tuple of 2 values"):
        ItemSource([(1, 2, 3)], Trade)


def test_offsets_count_rows_and_released_rows_bound_them(tmp_path):
    source = ItemSource([(n,) for n in range(5)], "a bigint")
    source.open(str(tmp_path))
    assert source.initial() == {"0": 0}
    assert source.latest({}, 2) == {"0": 2}
    (tmp_path / "released").write_text("3")
    assert source.latest({"0": 2}, None) == {"0": 3}
    assert source.latest({"0": 3}, 1) == {"0": 3}
    assert not source.ended({"0": 3})
    (tmp_path / "released").write_text("99")
    assert source.latest({"0": 3}, None) == {"0": 5}
    assert source.ended({"0": 5})
    assert [row["a"] for row in items(source, 1, 3)] == [1, 2]


def test_it_survives_json_and_pickle():
    source = ItemSource([{"a": NOON}, b"{"], "a timestamp", "x")
    copy = source_from_spec(json.loads(json.dumps(source.spec())))
    assert copy == source
    assert items(copy) == items(pickle.loads(pickle.dumps(source))) == items(source)
    assert ItemSource([], "a int").latest({}, None) == {"0": 0}
