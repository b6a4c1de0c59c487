"""Async functions: bounded, patient, tried again, in order or not, and their answers shown once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

import penstock as ps
from penstock.errors import BadFunction, BadValue, FunctionFailed, UpdatingStream
from penstock.settings import Settings
from penstock.spark.lowering.python.async_calls import AHEAD, AsyncCaller, Calls
from penstock.testing import Crash, assert_rows, run_to_end
from tests.conftest import at
from tests.lookups import Client, Lookups, looking_up

SCHEMA = "path string, ts timestamp"


@pytest.fixture
def lookups() -> Iterator[Lookups]:
    with looking_up(crowd=8) as server:
        yield server


async def ask(row: dict[str, Any], client: Client) -> dict[str, Any]:
    return row | await client.get(row["path"])


def caller(server: Lookups, **changes: Any) -> AsyncCaller:
    calls = Calls(ask, partial(Client, server.port), at_once=8, timeout_us=5_000_000, retries=2, in_order=True)
    return AsyncCaller(replace(calls, **changes))


def answered(caller: AsyncCaller, *batches: list[str]) -> list[Any]:
    with caller:
        rows = ([{"path": path} for path in batch] for batch in batches)
        return [answer for answers in caller.answers(rows) for answer in answers]


def test_no_more_calls_run_at_once_than_allowed_and_so_many_do(lookups: Lookups) -> None:
    paths = [f"/crowd/{number}" for number in range(50)]
    found = answered(caller(lookups), paths[:10], paths[10:])
    assert [answer.row["path"] for answer in found] == paths
    assert all(answer.error is None for answer in found)
    assert lookups.most == 8


def test_answers_keep_the_order_of_rows_or_come_as_they_are_given(lookups: Lookups) -> None:
    paths = ["/last/0", *(f"/ok/{number}" for number in range(20))]
    assert [one.row["path"] for one in answered(caller(lookups), paths)] == paths
    lookups.tickets = 0
    assert next(one.row["path"] for one in answered(caller(lookups, in_order=False), paths)) != "/last/0"


def test_a_slow_call_holds_up_no_more_than_the_rows_that_are_read_ahead() -> None:
    """Promise: memory does not grow with the rows that come while one call waits."""
    first, given, seen = asyncio.Event(), [], []

    async def wait_or_not(row: int) -> int:
        if row == 0:
            await first.wait()
        return row

    def batches() -> Iterator[list[int]]:
        for number in range(40):
            given.append(number)
            yield list(range(number * 1_000, (number + 1) * 1_000))

    calls = Calls(wait_or_not, None, at_once=4, timeout_us=60_000_000, retries=0, in_order=True)
    with AsyncCaller(calls) as waiting:
        answers = waiting.answers(batches())
        waiting._loop.call_later(0.2, lambda: (seen.append(len(given)), first.set()))
        rows = [answer.made for some in answers for answer in some]
    assert rows == list(range(40_000))
    assert seen[0] * 1_000 <= AHEAD + 1_000


def test_a_failed_call_is_tried_again_and_given_up_after_the_last_try(lookups: Lookups) -> None:
    flaky, broken, slow = answered(
        caller(lookups, timeout_us=200_000, retries=1), ["/flaky/1", "/broken/2", "/never/3"]
    )
    assert flaky.made["ticket"]
    assert flaky.error is None
    assert "500" in str(broken.error)
    assert str(slow.error) == "no answer within 200ms, 2 times"
    assert lookups.asked == {"/flaky/1": 2, "/broken/2": 2, "/never/3": 2}


def test_what_the_function_cancels_is_not_tried_again_and_the_client_is_closed_once() -> None:
    tried: list[int] = []

    async def cancels(row: int, client: Client) -> int:
        tried.append(row)
        raise asyncio.CancelledError

    async def made() -> Client:
        return Client(0)

    before = Client.closed
    with AsyncCaller(Calls(cancels, made, 2, 1_000_000, 3, True)) as calls:
        (answers,) = calls.answers([[1]])
    assert "cancelled" in str(answers[0].error)
    assert tried == [1]
    assert Client.closed == before + 1


def test_what_using_raises_is_reported_and_nothing_is_left_running() -> None:
    def using() -> Client:
        raise OSError("no server")

    with pytest.raises(OSError, match="no server"), AsyncCaller(Calls(ask, using, 1, 1, 0, True)):
        pass


@dataclass
class Asked:
    path: str
    ticket: int


def test_lookups_keep_event_time_are_counted_and_shown_once_over_a_crash(lookups: Lookups, settings: Settings) -> None:
    """Promise: exactly once. A replay shows the answers of the first try, though the function is called again."""
    stream = ps.from_items([], SCHEMA).named("rows").event_time("ts", "1s")
    port, schema = lookups.port, f"{SCHEMA}, ticket bigint"
    how = {"using": lambda: Client(port), "timeout": "5s", "retries": 0, "concurrency": 8}
    ordered = stream.map_async(ask, schema, **how).named("ordered")
    loose = stream.map_async(ask, schema, **how, ordered=False).named("loose")
    windows = loose.window(ps.tumbling("10s")).aggregate(n="count(ticket)").named("windows")
    outputs = windows.to(ps.collect()).named("out"), ordered.to(ps.collect()).named("a")
    pipeline = ps.Pipeline("p", *outputs, rejected_to=ps.collect())
    paths = ["/last/0", *(f"/ok/{number}" for number in range(1, 9))]
    rows = [{"path": path, "ts": at(2 * number)} for number, path in enumerate(paths)]
    out = run_to_end(pipeline, {"rows": [*rows, Crash(), {"path": "/broken/1", "ts": at(30)}]}, settings=settings)
    assert_rows(({"path": row["path"], "ts": row["ts"]} for row in out["a"]), rows)
    # Both nodes together asked 18 times before the crash; the replays asked anew, and nobody sees their answers.
    assert all(row["ticket"] <= 18 for row in out["a"])
    assert [(row["window_start"], row["n"]) for row in out["out"]] == [(at(0), 5), (at(10), 4)]
    assert sorted(bad["node"] for bad in out["collect"]) == ["loose", "ordered"]
    assert all("500" in bad["reason"] for bad in out["collect"])
    for counts in (out.counts["ordered"], out.counts["loose"]):
        assert (counts.rows_in, counts.used, counts.rejected) == (10, 9, 1)


def test_a_call_that_fails_for_good_stops_the_job_where_rejected_rows_go_nowhere(
    lookups: Lookups, settings: Settings
) -> None:
    port = lookups.port
    looked = ps.from_items([{"path": "/broken/1"}], "path string").map_async(
        ask, "path string, ticket bigint", using=lambda: Client(port), retries=1, concurrency=1
    )
    with pytest.raises(FunctionFailed, match=r"map_async.*ask raised ConnectionError.*/broken/1"):
        run_to_end(ps.Pipeline("p", looked.to(ps.collect())), {}, settings=settings)


def test_mistakes_are_reported_when_the_pipeline_is_built() -> None:
    items = ps.from_items([], "path string")
    with pytest.raises(BadFunction, match="is not async"):
        items.map_async(lambda row: row)
    with pytest.raises(BadFunction, match="map_async"):
        items.map(ask)
    with pytest.raises(BadValue, match="concurrency=0"):
        items.map_async(ask, using=Client, concurrency=0)
    with pytest.raises(BadValue, match="retries=-1"):
        items.map_async(ask, using=Client, retries=-1)
    with pytest.raises(BadValue, match="timeout must be more than 0"):
        items.map_async(ask, using=Client, timeout="0s")
    with pytest.raises(UpdatingStream):
        items.key_by("path").aggregate(n="count(*)").map_async(ask, using=Client)


def test_the_plan_says_how_calls_are_made_and_that_rows_wait_for_all_sinks() -> None:
    async def look(row: Asked) -> Asked:
        return row

    looked = ps.from_items([], Asked).map_async(look, ordered=False, concurrency=5)
    said = ps.Pipeline("p", looked.to(ps.collect())).explain()
    assert "5 at once, timeout 10s, retries 2, as they come" in said
    assert "map_async' is not deterministic" in said
