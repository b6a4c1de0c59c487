"""Queries and conditions over a real log, in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.control.api.topics import MessageQuery
from penstock.control.broker.broker import Broker
from penstock.control.broker.console import MOST_AT_ONCE, Console
from penstock.control.client.client import Client
from penstock.control.rest.app import create_app
from penstock.errors import ExpressionFailed, RequestRefused, UnknownColumn
from tests.connectors.kafka_topics import Topic
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving

TRADES = [{"symbol": "AB"[n % 2], "price": n / 4, "size": n, "at": 1_767_225_600_000 + 1000 * n} for n in range(120)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    from benchmarks.peers.penstock_log import PenstockServer

    with PenstockServer() as server:
        trades = Topic(server.bootstrap, "trades").create(2)
        for partition in (0, 1):
            texts = [json.dumps(trade) for trade in TRADES[partition::2]]
            trades.produce(texts, partition, key=f"k{partition}", headers=[("from", b"test")])
        trades.produce(["not json", b"\xff"], 0)
        Topic(server.bootstrap, "lines").create(1).produce(["first", "second", None])
        Topic(server.bootstrap, "wide").create(1).produce([json.dumps({"xs": list(range(3000))})])
        made = Broker(server.bootstrap)
        yield made
        made.close()


@pytest.fixture(scope="module")
def api(broker: Broker) -> Iterator[httpx.Client]:
    manager = MemoryManager()
    manager.add("vwap")
    app = create_app(manager, broker=broker)
    with serving(app) as url, httpx.Client(base_url=f"{url}/api/v1", timeout=60, trust_env=False) as client:
        yield client


def asked(api: httpx.Client, sql: str, **more: Any) -> list[dict[str, Any]]:
    response = api.post("/queries", json={"sql": sql, "timeout": 30, **more})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def rows(api: httpx.Client, sql: str, **more: Any) -> list[dict[str, Any]]:
    _, *chunks, end = asked(api, sql, **more)
    assert end["done"], end
    return [row for chunk in chunks for row in chunk["rows"]]


def test_a_query_reads_a_topic_with_the_schema_of_its_documents(api: httpx.Client) -> None:
    head, *chunks, end = asked(api, "SELECT symbol, sum(size) AS s FROM trades GROUP BY symbol ORDER BY symbol")
    assert head["columns"] == [{"name": "symbol", "type": "string"}, {"name": "s", "type": "bigint"}]
    sums = [{"symbol": symbol, "s": sum(range(first, 120, 2))} for first, symbol in enumerate("AB")]
    assert [row for chunk in chunks for row in chunk["rows"]] == sums
    assert (end["scanned"], end["rows"], end["truncated"]) == (122, 2, False)
    assert "2 of 122 records of 'trades' do not fit its schema" in head["warnings"][0]
    assert "ps.read_topic('trades', schema='symbol string, price double, size bigint, at bigint')" in head["python"]


def test_a_column_that_a_window_is_over_is_a_time(api: httpx.Client) -> None:
    sql = "SELECT window.start AS s, count(*) AS n FROM trades GROUP BY window(at, '1 minute') ORDER BY s"
    assert [row["n"] for row in rows(api, sql)] == [60, 60]


def test_a_schema_may_be_given_and_columns_of_the_record_named(api: httpx.Client) -> None:
    sources = {"t": {"topic": "trades", "schema": "size int, at timestamp", "from": "beginning", "limit": 40}}
    head, *_, end = asked(api, "SELECT size, at, _partition, _offset FROM t", sources=sources)
    assert [column["type"] for column in head["columns"]] == ["int", "timestamp", "int", "bigint"]
    assert end["truncated"]
    assert 40 <= end["scanned"] == end["rows"] <= 41  # a share of each partition, rounded up
    newest = {"t": {"topic": "trades", "limit": 40, "from": "end"}}
    assert rows(api, "SELECT min(size) AS m FROM t", sources=newest)[0]["m"] > 70


def test_records_that_are_no_json_are_texts(api: httpx.Client) -> None:
    found = rows(api, "SELECT value FROM lines")
    assert found == [{"value": "first"}, {"value": "second"}, {"value": None}]


def test_the_state_of_a_job_is_a_table(api: httpx.Client) -> None:
    state = api.get("/jobs/vwap/state").json()["rows"]
    found = rows(api, "SELECT count(*) AS n FROM s", sources={"s": {"job": "vwap"}})
    assert found == [{"n": len(state)}]


def test_the_client_returns_rows_or_raises(api: httpx.Client) -> None:
    with Client(str(api.base_url.copy_with(path="/"))) as client:
        found = client.query("SELECT count(*) AS n FROM t", t={"topic": "lines"})
        assert found == [{"n": 3}]
        with pytest.raises(ExpressionFailed, match="Division by zero"):
            client.query("SELECT price / (size - 3) AS x FROM trades")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"sql": "SELECT pirce FROM trades"}, 422, "did you mean 'price'"),
        ({"sql": "SELECT x FROM nothing"}, 404, "no topic 'nothing'"),
        ({"sql": "SELECT * FROM read_csv('/etc/passwd')"}, 422, "not available"),
        ({"sql": "COPY trades TO '/tmp/x'"}, 422, "only reads"),
        ({"sql": "SELECT 1 FROM s", "sources": {"s": {"job": "none"}}}, 404, "none"),
        ({"sql": "SELECT 1 FROM s", "sources": {"s": {"job": "vwap", "topic": "trades"}}}, 422, "not both"),
        ({"sql": "SELECT a FROM t", "sources": {"t": {"topic": "trades", "schema": "a nonsense"}}}, 422, "nonsense"),
        ({"sql": ""}, 422, "sql"),
    ],
)
def test_a_mistake_is_a_problem(api: httpx.Client, body: dict[str, Any], status: int, words: str) -> None:
    response = api.post("/queries", json=body)
    problem = response.json()
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert words in f"{problem['detail']} {problem['hint']}"


def test_an_error_in_a_row_is_the_last_line(api: httpx.Client) -> None:
    *_, last = asked(api, "SELECT price / (size - 3) AS x FROM trades")
    assert (last["problem"]["title"], last["problem"]["status"]) == ("ExpressionFailed", 422)


def test_a_query_that_takes_too_long_is_ended(api: httpx.Client) -> None:
    views = "".join(f" LATERAL VIEW explode(xs) v{n} AS x{n}" for n in range(4))
    *_, last = asked(api, f"SELECT sum(x0 * x1 + x2 * x3) AS s FROM wide{views}", timeout=1)
    assert "took more than 1 s" in last["problem"]["detail"]


def test_only_so_many_queries_run_at_once(broker: Broker) -> None:
    console = Console(broker.connection)
    running = [console.ask({"kind": "query", "sql": "SELECT 1"}, 30) for _ in range(MOST_AT_ONCE)]
    try:
        with pytest.raises(RequestRefused, match="running already"):
            console.ask({"kind": "query", "sql": "SELECT 1"}, 30)
    finally:
        for each in running:
            each.close()
        console.close()


def found(broker: Broker, where: str, **query: Any) -> list[int]:
    given = MessageQuery.model_validate({"where": where, "from": "beginning", "limit": 1000, **query})
    return sorted(each.document["size"] for each in broker.messages("trades", given).items)


def test_messages_are_filtered_by_a_condition_over_their_fields(broker: Broker) -> None:
    assert found(broker, "price > 28 AND symbol = 'A'") == [114, 116, 118]
    assert found(broker, "key = 'k1' AND offset < 2 AND partition = 1") == [1, 3]
    assert found(broker, "headers['from'] = 'test' AND size BETWEEN 4 AND 6") == [4, 5, 6]
    assert found(broker, "timestamp > timestamp '2020-01-01 00:00:00' AND value LIKE '%: 7.5,%'") == [30]
    assert found(broker, "size < 10", contains='"A"') == [0, 2, 4, 6, 8]
    # Partition 1 was written last.
    assert found(broker, "size < 100", **{"from": "end", "limit": 2}) == [97, 99]


def test_a_condition_holds_for_messages_without_the_field_too(broker: Broker) -> None:
    given = MessageQuery.model_validate({"where": "price IS NULL", "from": "beginning"})
    list_of = broker.messages("trades", given)
    assert [each.value or each.value_base64 for each in list_of.items] == ["not json", "/w=="]
    assert (list_of.scanned, list_of.complete) == (122, True)


def test_a_mistake_in_a_condition_is_a_problem(broker: Broker, api: httpx.Client) -> None:
    with pytest.raises(UnknownColumn, match="did you mean 'price'"):
        found(broker, "pirce > 10")
    for wrong in ("price >", "price", "getenv('HOME') = 'x'", "key IN (SELECT 1)", "count(*) > 1", "1; DROP TABLE x"):
        response = api.get("/topics/trades/messages", params={"where": wrong})
        assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json"), wrong
