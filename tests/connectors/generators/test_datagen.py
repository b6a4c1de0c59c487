from __future__ import annotations

import itertools
import json
import pickle
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.catalog import source_from_spec
from penstock.connectors.generators.datagen import DataGen
from penstock.errors import BadValue
from penstock.schema import Schema

EVERYTHING = """s string, i int, l bigint, t tinyint, d double, f float, b boolean, y date, ts timestamp,
    n timestamp_ntz, c decimal(7,2), x binary, a array<struct<p:double,q:timestamp>>, m map<string,bigint>,
    v interval day to second"""
START = datetime(2026, 1, 1, tzinfo=UTC)


def table(source, first, last):
    return pa.Table.from_batches(source.read("0", first, last), source.schema.nullable().arrow).combine_chunks()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["trades", "clicks", "orders", EVERYTHING]),
    st.integers(0, 1 << 70),
    st.integers(0, 1 << 40),
    st.lists(st.integers(0, 300), max_size=5),
)
def test_any_cut_gives_the_rows_of_the_whole(shape, seed, base, cuts):
    source = DataGen(shape, seed=seed, keys=50)
    edges = [base + at for at in sorted({0, 300, *cuts})]
    parts = [table(source, first, last) for first, last in itertools.pairwise(edges)]
    assert pa.concat_tables(parts).equals(table(source, base, base + 300))


def test_ranges_longer_than_a_batch_join_without_a_seam():
    source = DataGen("trades")
    assert table(source, 60_000, 140_000).slice(5_000, 5).equals(table(source, 65_000, 65_005))


def test_every_value_is_valid_and_none_is_null():
    rows = table(DataGen(EVERYTHING), 0, 1_000)
    rows.validate(full=True)
    assert all(column.null_count == 0 for column in rows.columns)
    assert not table(DataGen("trades", seed=1), 0, 9).equals(table(DataGen("trades", seed=2), 0, 9))


def test_trades_are_exact_prices_near_a_level_per_symbol():
    rows = table(DataGen("trades", keys=100), 0, 100_000)
    assert rows.schema.names == ["symbol", "price", "size", "ts"]
    assert set(rows["symbol"].to_pylist()) == {f"S{n:05}" for n in range(100)}
    scaled = pc.multiply(rows["price"], 256)
    assert pc.all(pc.equal(scaled, pc.floor(scaled))).as_py()
    assert 1 <= pc.min(rows["price"]).as_py() <= pc.max(rows["price"]).as_py() <= 500
    assert (pc.min(rows["size"]).as_py(), pc.max(rows["size"]).as_py()) == (0, 999)
    spread = rows.group_by("symbol").aggregate([("price", "min"), ("price", "max")])
    assert pc.max(pc.subtract(spread["price_max"], spread["price_min"])).as_py() < 14


def test_times_advance_with_some_disorder_and_few_late_rows():
    first, count = 10_000_000, 60_000
    times = table(DataGen("trades"), first, first + count)["ts"].to_pylist()
    behind = [START + timedelta(microseconds=100 * (first + n)) - ts for n, ts in enumerate(times)]
    late = [delay for delay in behind if delay > timedelta(seconds=2)]
    assert min(behind) >= timedelta(0)
    assert 0.0005 * count < len(late) < 0.002 * count
    assert all(timedelta(minutes=3) <= delay <= timedelta(minutes=10) for delay in late)


def test_disorder_and_lateness_can_be_turned_off():
    rows = table(DataGen("clicks", late=0.0, out_of_order=0), 0, 3)
    assert rows["ts"].to_pylist() == [START + timedelta(microseconds=100 * n) for n in range(3)]


def test_orders_are_numbered():
    rows = table(DataGen("orders"), 7, 9)
    assert rows["order_id"].to_pylist() == [7, 8]
    assert rows.schema.field("amount").type == pa.decimal128(10, 2)


def test_it_ends_after_its_rows_and_epochs_are_bounded():
    source = DataGen("trades", rows=10)
    assert source.latest(source.initial(), None) == {"0": 10}
    assert source.latest({"0": 8}, 1) == {"0": 9}
    assert (source.ended({"0": 9}), source.ended({"0": 10})) == (False, True)
    assert source.splits({"0": 0}, {"0": 10}, 3) == [("0", 0, 3), ("0", 3, 6), ("0", 6, 10)]
    endless = DataGen("trades")
    assert not endless.ended({"0": 1 << 60})
    assert endless.latest({"0": 5}, None)["0"] > 5


def test_a_rate_follows_the_clock_through_restarts_and_the_test_kits_shift(tmp_path):
    folder = tmp_path / "checkpoint/sources/trades"
    source = DataGen("trades", rate=100)
    source.open(str(folder))
    source.now = lambda: 50.0
    assert source.latest({}, None) == {"0": 0}
    source.now = lambda: 51.5
    assert source.latest({}, None) == {"0": 150}
    assert source.latest({}, 20) == {"0": 20}
    again = DataGen("trades", rate=100)
    again.open(str(folder))
    again.now = lambda: 52.0
    assert again.latest({}, None) == {"0": 200}
    (tmp_path / "checkpoint/clock-shift").write_text("3000000")
    assert again.latest({}, None) == {"0": 500}


def test_it_survives_json_and_pickle():
    source = DataGen({"a": "string", "b": "decimal(5,1)"}, rows=3, rate=4, keys=7, seed=9, late=0.5)
    copy = source_from_spec(json.loads(json.dumps(source.spec())))
    assert copy == source
    assert table(copy, 0, 3).equals(table(pickle.loads(pickle.dumps(source)), 0, 3))
    assert DataGen("orders").spec()["shape"] == "orders"
    assert DataGen("trades").schema == Schema("symbol string, price double, size bigint, ts timestamp")


def test_impossible_numbers_are_refused():
    with pytest.raises(BadValue, match="rate=0 is less than 1"):
        DataGen("trades", rate=0)
    with pytest.raises(BadValue, match="rows=-1 is less than 0"):
        DataGen("trades", rows=-1)
