"""Promise: joins of streams give what batch SQL gives over the rows that were not late, for any order of rows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import BadJoin, BadSchema, BadWindow, MissingEventTime, UnknownColumn, UpdatingStream
from penstock.settings import Settings
from penstock.testing import EOF, Crash, run_to_end
from tests.conftest import at

SHAPE = "id bigint, k string, ts timestamp"
TIMES = {
    "interval": ("-2s", "3s"),
    "tumbling": ps.tumbling("10s"),
    "sliding": ps.sliding("10s", "5s", offset="1s"),
}
SAME_TIME = {
    "interval": "r.s - l.s BETWEEN -2 AND 3",
    "tumbling": "l.s // 10 = r.s // 10",
    "sliding": "greatest(l.s, r.s) < (least(l.s, r.s) - 1) // 5 * 5 + 1 + 10",
}
ASOF = """
    SELECT l.id, (SELECT r.id FROM r WHERE r.k = l.k AND r.s <= l.s AND l.s - r.s <= 6
        ORDER BY r.s DESC, r.id DESC LIMIT 1) AS met FROM l
"""


def rows(seed: int, side: str, epochs: int) -> list[list[dict[str, Any]]]:
    """Some epochs of rows that drift forward, out of order, some far behind; on whole seconds, to meet bounds."""
    chance = random.Random(f"{seed}{side}")
    made, number = [], 0
    for epoch in range(epochs):
        made.append([])
        for _ in range(40):
            seconds = epoch * 15 + chance.randrange(0, 20) - (40 if chance.random() < 0.1 else 0)
            key = chance.choice(["a", "b", "c", None])
            made[-1].append({"id": number, "k": key, "ts": at(60 + seconds)})
            number += 1
    return made


def answered(sql: str, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    schema = ps.Schema(SHAPE).arrow
    with duckdb.connect() as db:
        for name, rows in (("l", left), ("r", right)):
            db.register(f"{name}_rows", pa.Table.from_pylist(rows, schema=schema))
            db.execute(f"CREATE VIEW {name} AS SELECT *, epoch_ms(ts) // 1000 AS s FROM {name}_rows")
        return sorted(db.sql(sql).fetchall(), key=repr)


def expected(how: str, time: str, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    if time == "asof":
        found = answered(ASOF, left, right)
        return [one for one in found if how == "left" or one[1] is not None]
    on = f"{how.upper()} JOIN r ON l.k = r.k AND {SAME_TIME[time]}"
    columns = "l.k, l.id, NULL" if how in ("semi", "anti") else "coalesce(l.k, r.k), l.id, r.id"
    return answered(f"SELECT {columns} FROM l {on}", left, right)


def joined(left: ps.Stream, right: ps.Stream, how: Any, time: str) -> ps.Stream:
    if time == "asof":
        return left.join_asof(right, "k", how, max_age="6s")
    return left.join(right, "k", how, within=TIMES[time])


def found(rows: list[dict[str, Any]], time: str) -> list[tuple[Any, ...]]:
    plain = [(row["k"], row["id"], row.get("id_right")) for row in rows]
    return sorted([one[1:] for one in plain] if time == "asof" else plain, key=repr)


def check(cases: list[tuple[str, str]], seed: int, lane: Any, settings: Settings) -> None:
    """Run all cases in one pipeline, with a crash in its middle; in short, of few cases, two epochs."""
    sides = {name: ps.from_items([], SHAPE).named(name).event_time("ts", "5s") for name in ("left", "right")}
    outputs = []
    for how, time in cases:
        join = joined(sides["left"], sides["right"], how, time).named(f"{how}-{time}")
        outputs.append(join.to(ps.collect()).named(f"rows-{how}-{time}"))
        outputs += [join.side(f"late_{s}").to(ps.collect()).named(f"late-{s}-{how}-{time}") for s in sides]
    controls = [EOF, Crash(), EOF] if seed > 1 else [Crash(), EOF]
    given = {name: rows(seed, name, len(controls)) for name in sides}
    items = {
        name: [one for e, c in zip(epochs, controls, strict=True) for one in (*e, c)][:-1]
        for name, epochs in given.items()
    }
    out = run_to_end(ps.Pipeline("joins", *outputs), items, settings=replace(settings, lane=lane))
    for how, time in cases:
        late = {s: {row["id"] for row in out[f"late-{s}-{how}-{time}"]} for s in sides}
        used = {s: [r for e in given[s] for r in e if r["id"] not in late[s]] for s in sides}
        assert late["left"]
        assert late["right"]
        assert found(out[f"rows-{how}-{time}"], time) == expected(how, time, used["left"], used["right"]), (how, time)
        counts = out.counts[f"{how}-{time}"]
        assert (counts.rows_in, counts.late) == (80 * len(controls), len(late["left"]) + len(late["right"]))
        assert counts.used == counts.rows_in - counts.late


def test_joins_of_streams_are_what_batch_sql_gives(settings: Settings) -> None:
    check([("full", "interval"), ("left", "asof")], 1, "auto", settings)


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["auto", "spark"])
@pytest.mark.parametrize("time", ["interval", "tumbling", "sliding", "asof"])
@pytest.mark.parametrize("seed", [2, 3])
def test_every_join_is_what_batch_sql_gives(seed: int, time: str, lane: str, settings: Settings) -> None:
    every = ("left", "inner") if time == "asof" else ("inner", "left", "right", "full", "semi", "anti")
    check([(how, time) for how in every], seed, lane, settings)


@pytest.mark.slow
def test_two_branches_of_one_source_meet_and_a_window_follows(settings: Settings) -> None:
    """An order and its payment are rows of one topic; the result keeps the left's time."""
    events = ps.from_items([], "kind string, order bigint, ts timestamp").named("events").event_time("ts", "1s")
    orders, paid = events.filter("kind = 'order'"), events.filter("kind = 'paid'")
    both = orders.join(paid, "order", "left", within=("0s", "20s"))
    counts = both.window(ps.tumbling("60s")).aggregate(orders="count(*)", paid="count(ts_right)")
    pairs = events.join(events, "order", within=("1s", "20s")).named("pairs")
    given = [("order", 1, 10), ("order", 2, 15), ("paid", 1, 25), ("order", 3, 50), ("paid", 2, 36), ("order", 4, 70)]
    items = [{"kind": kind, "order": order, "ts": at(seconds)} for kind, order, seconds in given]
    pipeline = ps.Pipeline("paid", counts.to(ps.collect()).named("counts"), pairs.to(ps.collect()).named("pairs-out"))
    out = run_to_end(pipeline, {"events": [*items[:3], EOF, *items[3:]]}, settings=settings)
    assert [(row["window_start"], row["orders"], row["paid"]) for row in sorted(out["counts"], key=repr)] == [
        (at(0), 3, 1),
        (at(60), 1, 0),
    ]
    assert [(row["kind"], row["kind_right"], row["order"]) for row in out["pairs-out"]] == [("order", "paid", 1)]


def streams() -> tuple[ps.Stream, ps.Stream]:
    left = ps.from_items([], "id bigint, a string, ts timestamp").named("lefts").event_time("ts", "1s")
    right = ps.from_items([], "id bigint, b double, ts timestamp").named("rights").event_time("ts", "1s")
    return left, right


def test_keys_come_once_and_names_that_clash_get_the_suffix() -> None:
    left, right = streams()
    ddl = {
        "inner": "id bigint, a string, ts timestamp not null, b double, ts_2 timestamp not null",
        "left": "id bigint, a string, ts timestamp not null, b double, ts_2 timestamp",
        "right": "id bigint, a string, ts timestamp, b double, ts_2 timestamp not null",
        "full": "id bigint, a string, ts timestamp, b double, ts_2 timestamp",
        "anti": "id bigint, a string, ts timestamp not null",
    }
    for how, columns in ddl.items():
        made = left.join(right, {"id": "id"}, how, within=("0s", "1s"), suffix="_2")  # type: ignore[arg-type]
        assert made.schema.ddl == columns
        assert made.node.event_time == (how != "full")


@pytest.mark.parametrize(
    ("error", "build"),
    [
        (BadJoin, lambda left, r: left.join(r, "id")),
        (BadJoin, lambda left, r: left.join(r, "id", within=("3s", "1s"))),
        (BadJoin, lambda left, r: left.join(r, (), within=("0s", "1s"))),
        (BadJoin, lambda left, r: left.join(r, "id", "outer", within=("0s", "1s"))),
        (BadJoin, lambda left, r: left.join_asof(r, "id", "full")),
        (BadJoin, lambda left, r: left.with_columns(ts_right="ts").join(r, "id", within=("0s", "1s"))),
        (BadSchema, lambda left, r: left.join(r, {"a": "b"}, within=("0s", "1s"))),
        (BadWindow, lambda left, r: left.join(r, "id", within=ps.session("1s"))),
        (UnknownColumn, lambda left, r: left.join(r, {"id": "nr"}, within=("0s", "1s"))),
        (MissingEventTime, lambda left, r: left.join(ps.from_items([], "id bigint"), "id", within=("0s", "1s"))),
        (UpdatingStream, lambda left, r: left.key_by("id").aggregate(n="count(*)").join(r, "id", within=("0s", "1s"))),
    ],
)
def test_a_join_that_cannot_be_is_refused_when_it_is_built(error: type[Exception], build: Any) -> None:
    with pytest.raises(error, match="join"):
        build(*streams())


def test_a_plan_with_joins_comes_back_from_json() -> None:
    left, right = streams()
    inner = left.join(right, "id", within=("-1s", "2s")).named("one")
    other = left.join(right, "id", "semi", within=ps.tumbling("10s")).named("two")
    asof = left.join_asof(right, "id", max_age="1h")
    pipeline = ps.Pipeline("p", *(s.to(ps.console()).named(f"c{n}") for n, s in enumerate((inner, other, asof))))
    assert ps.Pipeline.from_json(pipeline.to_json()).explain() == pipeline.explain()
    assert "inner on id within -1s to 2s" in pipeline.explain()
