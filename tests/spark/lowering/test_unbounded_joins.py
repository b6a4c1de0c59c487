"""Promise: a join without a bound in time gives what batch SQL gives over all rows, whatever their times."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.spark.checkpoints.savepoints import create_savepoint, restore_savepoint
from penstock.spark.checkpoints.state.reader import read_state
from penstock.storage.folders import folder
from penstock.testing import EOF, AdvanceTime, Crash, run_to_end
from tests.conftest import at, at_parallelism

SHAPE = "id bigint, k string, ts timestamp"


def rows(side: str, epochs: int = 4) -> list[list[dict[str, Any]]]:
    """Some epochs of rows with several matches and null keys, on whose times no order can be seen."""
    chance = random.Random(side)
    keys = [*"abcdef", None]
    made = [(chance.choice(keys), chance.randrange(0, 100_000)) for _ in range(epochs * 12)]
    given = [{"id": number, "k": key, "ts": at(seconds)} for number, (key, seconds) in enumerate(made)]
    return [given[start : start + 12] for start in range(0, len(given), 12)]


def answered(sql: str, **tables: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as db:
        for name, given in tables.items():
            db.register(name, pa.Table.from_pylist(given))
        return sorted(db.sql(sql).fetchall(), key=repr)


def flat(epochs: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for epoch in epochs for row in epoch]


def items(epochs: list[list[dict[str, Any]]], controls: list[Any]) -> list[Any]:
    return [one for epoch, control in zip(epochs, controls, strict=True) for one in (*epoch, control)]


# In short, the Nexmark queries and the savepoint below.
@pytest.mark.slow
@pytest.mark.parametrize(("lane", "parallelism"), [("auto", 2), ("spark", 3)])
def test_rows_meet_at_any_distance_and_over_a_crash(lane: Any, parallelism: int, settings: Settings) -> None:
    """The left has event time and moves the watermark past everything; the right has none."""
    left = ps.from_items([], SHAPE).named("left").event_time("ts", "1s")
    right = ps.from_items([], SHAPE).named("right")
    inner = left.join(right, "k", within="unbounded").named("inner")
    semi = left.join(right, "k", "semi", within="unbounded").named("semi")
    counts = inner.key_by("k").aggregate(n="count(*)", newest="max(ts)").named("counts")
    semis = semi.key_by("k").aggregate(n="count(*)").named("semis")
    fours = inner.key_by("k").window(ps.count_window(4)).aggregate(n="count(*)").named("by-four")
    outputs = {"pairs": inner, "met": semi, "totals": counts, "met-totals": semis, "fours": fours}
    pipeline = ps.Pipeline("unbounded", *(s.to(ps.collect()).named(name) for name, s in outputs.items()))
    given = {"left": rows("left"), "right": rows("right")}
    ahead = AdvanceTime("2099-01-01T00:00Z")
    controls = {"left": [ahead, Crash(), EOF, Crash()], "right": [EOF, EOF, Crash(), EOF]}
    out = run_to_end(
        pipeline,
        {name: items(epochs, controls[name]) for name, epochs in given.items()},
        settings=replace(at_parallelism(settings, parallelism), lane=lane),
    )
    tables = {"l": flat(given["left"]), "r": flat(given["right"])}
    pairs = answered("SELECT l.k, l.id, r.id FROM l JOIN r ON l.k = r.k", **tables)
    assert sorted(((row["k"], row["id"], row["id_right"]) for row in out["pairs"]), key=repr) == pairs
    met = answered("SELECT k, id FROM l WHERE k IN (SELECT k FROM r)", **tables)
    assert sorted(((row["k"], row["id"]) for row in out["met"]), key=repr) == met
    last = {row["k"]: (row["n"], row["newest"].timestamp()) for row in out["totals"]}
    totals = answered("SELECT l.k, count(*), epoch(max(l.ts)) FROM l JOIN r ON l.k = r.k GROUP BY 1", **tables)
    assert sorted((k, *rest) for k, rest in last.items()) == totals
    assert {row["k"]: row["n"] for row in out["met-totals"]} == Counter(k for k, _ in met)
    each = Counter(k for k, *_ in pairs)
    assert Counter((row["k"], row["n"]) for row in out["fours"]) == sum(
        (Counter({(k, 4): n // 4, (k, n % 4): 1 if n % 4 else 0}) for k, n in each.items()), Counter()
    )
    assert out.counts["inner"].late == out.counts["semi"].late == 0
    assert out.counts["inner"].used == out.counts["inner"].rows_in == 96


PEOPLE = "id bigint, name string, city string, state string"
AUCTIONS = "id bigint, itemName string, seller bigint, category bigint, dateTime timestamp"
BIDS = "auction bigint, bidder bigint, price bigint, channel string, dateTime timestamp"


def nexmark(epochs: int) -> dict[str, list[list[dict[str, Any]]]]:
    """Return some of Nexmark's events in so many epochs; auctions come before and after their sellers and bids."""
    chance = random.Random(3)
    states = ["OR", "ID", "CA", "WA"]
    people = [{"id": n, "name": f"p{n}", "city": f"c{n % 3}", "state": chance.choice(states)} for n in range(12)]
    auctions = [
        {
            "id": n,
            "itemName": f"i{n}",
            "seller": chance.randrange(14),
            "category": chance.choice([10, 11]),
            "dateTime": at(n),
        }
        for n in range(30)
    ]
    bids = [
        {"auction": chance.randrange(35), "bidder": n, "price": n * 3, "channel": "c", "dateTime": at(1000 - n)}
        for n in range(60)
    ]
    tables = {"people": people, "auctions": auctions, "bids": bids}
    for rows in tables.values():
        chance.shuffle(rows)
    return {name: [rows[part::epochs] for part in range(epochs)] for name, rows in tables.items()}


SHORT = {"people": [Crash(), EOF], "auctions": [EOF, EOF], "bids": [EOF, EOF]}
LONG = {"people": [EOF, Crash(), EOF], "auctions": [EOF, EOF, Crash()], "bids": [EOF, EOF, EOF]}


@pytest.mark.parametrize("controls", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def test_nexmark_q3_and_q20(settings: Settings, controls: dict[str, list[Any]]) -> None:
    people = ps.from_items([], PEOPLE).named("people")
    auctions = ps.from_items([], AUCTIONS).named("auctions").filter("category = 10")
    bids = ps.from_items([], BIDS).named("bids")
    west = people.filter("state IN ('OR', 'ID', 'CA')")
    q3 = auctions.join(west, {"seller": "id"}, within="unbounded").named("q3").select("name", "city", "state", "id")
    q20 = bids.join(auctions, {"auction": "id"}, within="unbounded").named("q20")
    pipeline = ps.Pipeline("nexmark", q3.to(ps.collect()).named("local"), q20.to(ps.collect()).named("expanded"))
    given = nexmark(len(controls["people"]))
    events = {name: items(epochs, controls[name]) for name, epochs in given.items()}
    out = run_to_end(pipeline, events, settings=settings)
    tables = {name: flat(epochs) for name, epochs in given.items()}
    local = answered(
        "SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN people p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        **tables,
    )
    near = [(row["name"], row["city"], row["state"], row["id"]) for row in out["local"]]
    assert sorted(near, key=repr) == local
    expanded = answered(
        "SELECT b.auction, b.bidder, b.price, a.itemName, a.seller, epoch(b.dateTime), epoch(a.dateTime) "
        "FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10",
        **tables,
    )
    columns = ("auction", "bidder", "price", "itemName", "seller")
    found = [
        (*(row[name] for name in columns), row["dateTime"].timestamp(), row["dateTime_right"].timestamp())
        for row in out["expanded"]
    ]
    assert sorted(found, key=repr) == expanded
    assert len(local) > 3
    assert len(expanded) > 10


@pytest.mark.slow
def test_its_state_is_shown_and_a_savepoint_goes_on_from_it(settings: Settings, tmp_path: Path) -> None:
    shape = "id bigint, k string"

    def job(left: list[dict[str, Any]], right: list[dict[str, Any]], made: list[Any]) -> ps.Pipeline:
        (tmp_path / "l").mkdir(exist_ok=True)
        (tmp_path / "r").mkdir(exist_ok=True)
        for side, rows in (("l", left), ("r", right)):
            if rows:
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (tmp_path / side / f"{rows[0]['id']}.json").write_text(text)
        sides = [ps.read_files(str(tmp_path / side), schema=shape, format="json").named(side) for side in "lr"]
        pairs = sides[0].join(sides[1], "k", within="unbounded").named("pairs")
        once = ps.sql("SELECT DISTINCT k FROM t", t=sides[0]).named("once")
        keep = ps.callback(lambda epoch, table: made.extend(table.to_pylist()))
        return ps.Pipeline("job", pairs.to(keep).named("out"), once.to(ps.callback(_ignored)).named("keys"))

    first: list[Any] = []
    job([{"id": 1, "k": "a"}, {"id": 2, "k": None}], [{"id": 3, "k": "b"}], first).run(
        until="drained", checkpoint=tmp_path / "c", settings=settings
    )
    found = read_state(folder(tmp_path / "c"), settings, node="pairs")
    assert [(row["side"], row["k"], row["time"]) for row in found.rows] == [("left", "a", None), ("right", "b", None)]
    assert sorted(row["k"] or "" for row in read_state(folder(tmp_path / "c"), settings, node="once").rows) == ["", "a"]
    create_savepoint(folder(tmp_path / "c"), folder(tmp_path / "s"), "one")
    restore_savepoint(folder(tmp_path / "s") / "one", folder(tmp_path / "d"))
    then: list[Any] = []
    job([{"id": 4, "k": "b"}], [{"id": 5, "k": "a"}], then).run(
        until="drained", checkpoint=tmp_path / "d", settings=settings
    )
    assert first == []
    assert sorted((row["k"], row["id"], row["id_right"]) for row in then) == [("a", 1, 5), ("b", 4, 3)]


def _ignored(epoch: Any, table: Any) -> None:
    pass
