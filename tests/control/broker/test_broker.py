"""Topics and groups through Kafka's protocol, on a real log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import httpx
import pytest
from confluent_kafka import Consumer

from penstock.control.api.topics import GroupReset, MessageQuery, NewTopic, Record
from penstock.control.broker.broker import Broker
from penstock.control.broker.rates import Rates
from penstock.control.rest.app import create_app
from penstock.errors import BrokerRefused, NoBroker, UnknownGroup, UnknownSetting, UnknownTopic
from tests.connectors.kafka_topics import Topic, fresh
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from benchmarks.peers.penstock_log import PenstockServer

    with PenstockServer() as server:
        yield server.bootstrap


@pytest.fixture(scope="module")
def broker(address: str) -> Broker:
    return Broker(address)


@pytest.fixture
def orders(address: str, broker: Broker) -> Topic:
    """A topic with 6 records in 2 partitions."""
    topic = fresh(address).create(2)
    for number in range(6):
        broker.produce(topic.name, Record(key=f"k{number}", value=f"order {number}", partition=number % 2))
    return topic


def test_topics_are_listed_and_described(broker: Broker, orders: Topic) -> None:
    assert orders.name in [topic.name for topic in broker.topics().items]
    about = broker.topic(orders.name)
    assert [(each.beginning, each.end) for each in about.partitions] == [(0, 3), (0, 3)]
    assert about.config["retention.ms"] == "-1"


def test_a_listed_topic_has_its_size_and_how_long_it_keeps_records(broker: Broker, orders: Topic) -> None:
    (found,) = [topic for topic in broker.topics().items if topic.name == orders.name]
    assert (found.messages, found.partitions) == (6, 2)
    assert (found.retention_ms, found.cleanup_policy) == (-1, "delete")
    assert found.bytes is not None
    about = broker.topic(orders.name)
    assert found.bytes == about.bytes == sum(each.bytes or 0 for each in about.partitions)
    assert found.bytes > 6 * len("order 0")


def test_a_topic_is_created_and_deleted(broker: Broker, address: str) -> None:
    name = fresh(address).name
    made = broker.create_topic(NewTopic(name=name, partitions=3, config={"retention.ms": "60000"}))
    assert (len(made.partitions), made.retention_ms, made.messages) == (3, 60_000, 0)
    with pytest.raises(BrokerRefused, match=name):
        broker.create_topic(NewTopic(name=name))
    broker.delete_topic(name)
    assert name not in [topic.name for topic in broker.topics().items]
    with pytest.raises(UnknownTopic):
        broker.delete_topic(name)


def test_the_rate_of_a_topic_is_that_of_the_last_seconds() -> None:
    times = iter([0.0, 0.5, 2.0, 20.0, 40.0])
    rates = Rates(lambda: next(times))
    assert rates.measure({"orders": 10}) == {}
    assert rates.measure({"orders": 11}) == {}
    assert rates.measure({"orders": 30}) == {"orders": 10}
    # The samples of more than 15 s ago are forgotten, but for one.
    assert rates.measure({"orders": 48}) == {"orders": 1}
    assert rates.measure({"orders": 4}) == {"orders": 0}


def test_a_topic_that_is_not_there_comes_with_the_one_that_was_meant(broker: Broker, orders: Topic) -> None:
    with pytest.raises(UnknownTopic, match="did you mean"):
        broker.topic(orders.name[:-1])


def values(broker: Broker, topic: Topic, **query: object) -> list[str | None]:
    return [each.value for each in broker.messages(topic.name, MessageQuery.model_validate(query)).items]


def test_messages_are_read_from_a_position(broker: Broker, orders: Topic) -> None:
    everything = [f"order {number}" for number in range(6)]
    assert sorted(map(str, values(broker, orders, **{"from": "beginning"}))) == everything
    assert values(broker, orders, partition=0, offset=1) == ["order 2", "order 4"]
    assert len(values(broker, orders, limit=2)) == 2
    assert values(broker, orders, partition=1, limit=1) == ["order 5"]
    assert values(broker, orders, time="2100-01-01T00:00:00Z") == []


def test_messages_are_filtered_by_key_and_text(broker: Broker, orders: Topic) -> None:
    assert values(broker, orders, key="k3") == ["order 3"]
    assert values(broker, orders, contains="der 4", **{"from": "beginning"}) == ["order 4"]
    assert values(broker, orders, contains="nothing") == []


def test_an_offset_out_of_range_is_refused(broker: Broker, orders: Topic) -> None:
    with pytest.raises(UnknownSetting, match="no offset 9"):
        values(broker, orders, offset=9)


def test_a_record_has_its_headers_and_what_is_no_text_in_base64(broker: Broker, orders: Topic) -> None:
    produced = broker.produce(orders.name, Record(key="h", headers={"trace": "abc"}, partition=0))
    assert (produced.partition, produced.offset) == (0, 3)
    (found,) = broker.messages(orders.name, MessageQuery(key="h")).items
    assert (found.value, found.headers[0].key, found.headers[0].value) == (None, "trace", "abc")


def test_a_value_that_is_json_is_decoded(broker: Broker, orders: Topic) -> None:
    texts = ['{"price": 1.5}', "[1]", "5", "NaN", '"\\ud800"', "[" * 60 + "]" * 60, '{"a": "\\u00e9"}']
    for text in texts:
        broker.produce(orders.name, Record(key="json", value=text, partition=0))
    found = broker.messages(orders.name, MessageQuery(key="json", **{"from": "beginning"})).items
    assert [each.document for each in found] == [{"price": 1.5}, [1], 5, None, None, None, {"a": "é"}]
    assert [each.value for each in found] == texts


def test_groups_are_listed_with_lag_members_and_topics(broker: Broker, orders: Topic, address: str) -> None:
    broker.reset("lagging", GroupReset(topic=orders.name, offset=1))
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reading", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([orders.name])
        wait_for(lambda: consumer.poll(0.1) is not None, "nothing was read")
        found = {each.name: each for each in broker.groups().items}
        assert (found["lagging"].lag, found["lagging"].members, found["lagging"].topics) == (4, 0, [orders.name])
        assert (found["reading"].members, found["reading"].topics) == (1, [orders.name])
    finally:
        consumer.close()


def test_a_group_is_reset_and_has_its_lag(broker: Broker, orders: Topic) -> None:
    group = broker.reset("reports", GroupReset(topic=orders.name, to="beginning"))
    assert (group.lag, len(group.partitions)) == (6, 2)
    assert broker.reset("reports", GroupReset(topic=orders.name, offset=2, partition=1)).lag == 4
    assert "reports" in [each.name for each in broker.groups().items]
    with pytest.raises(UnknownGroup, match="did you mean 'reports'"):
        broker.group("report")


def test_a_group_with_members_is_not_reset(broker: Broker, orders: Topic, address: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "busy", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([orders.name])
        wait_for(lambda: consumer.poll(0.1) is not None, "nothing was read")
        assert broker.group("busy").members
        with pytest.raises(BrokerRefused, match="active members"):
            broker.reset("busy", GroupReset(topic=orders.name, to="end"))
    finally:
        consumer.close()


def test_a_log_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.broker.client.SECONDS", 1.0)
    with pytest.raises(NoBroker):
        Broker("127.0.0.1:1").topics()


def test_topics_and_groups_are_served(broker: Broker, orders: Topic) -> None:
    with serving(create_app(MemoryManager(), broker=broker)) as url, httpx.Client(base_url=url, trust_env=False) as api:
        assert api.get(f"/api/v1/topics/{orders.name}").json()["partitions"][1]["end"] == 3
        sent = api.post(f"/api/v1/topics/{orders.name}/messages", json={"value": "x", "partition": 0})
        assert (sent.status_code, sent.json()["offset"]) == (201, 3)
        found = api.get(f"/api/v1/topics/{orders.name}/messages", params={"from": "beginning", "contains": "x"}).json()
        assert ([each["value"] for each in found["items"]], found["complete"]) == (["x"], True)
        assert api.get("/api/v1/topics/nothing").status_code == 404
        assert api.get("/api/v1/groups/nothing").status_code == 404
        reset = api.post("/api/v1/groups/served/reset", json={"topic": orders.name, "to": "end"})
        assert (reset.status_code, reset.json()["lag"]) == (200, 0)


def test_new_messages_are_streamed_and_those_beyond_the_rate_are_counted(broker: Broker, orders: Topic) -> None:
    path = f"/api/v1/topics/{orders.name}/messages/stream"
    with (
        serving(create_app(MemoryManager(), broker=broker)) as url,
        httpx.stream("GET", url + path, params={"contains": "new", "rate": 2}, trust_env=False) as stream,
    ):
        lines = (line for line in stream.iter_lines() if line)
        assert next(lines) == ": subscribed"
        orders.produce(['{"new": 1}', "old", '{"new": 2}', '{"new": 3}', '{"new": 4}', '{"new": 5}'])
        sent = [json.loads(line[5:]) for line in islice((each for each in lines if each.startswith("data:")), 3)]
    assert [each["json"] for each in sent[:2]] == [{"new": 1}, {"new": 2}]
    # What comes in one second or in two depends on the clock, but nothing is lost without being counted.
    assert sent[2].get("missed", 0) >= 1 or sent[2]["json"] == {"new": 3}


def test_a_stream_of_an_unknown_topic_is_a_problem(broker: Broker) -> None:
    with serving(create_app(MemoryManager(), broker=broker)) as url:
        response = httpx.get(f"{url}/api/v1/topics/nothing/messages/stream", trust_env=False)
    assert (response.status_code, response.json()["title"]) == (404, "UnknownTopic")


def test_without_a_log_topics_are_a_problem() -> None:
    with serving(create_app(MemoryManager())) as url:
        response = httpx.get(f"{url}/api/v1/topics", trust_env=False)
    assert (response.status_code, response.json()["title"]) == (503, "NoBroker")
