"""Topics and groups without a log: for tests of the routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.control.api.queries import QueryRequest
from penstock.control.api.topics import (
    Group,
    GroupList,
    GroupReset,
    GroupSummary,
    Message,
    MessageList,
    MessageQuery,
    NewTopic,
    Partition,
    Produced,
    Record,
    Topic,
    TopicList,
    TopicSummary,
)
from penstock.errors import BadExpression, BrokerRefused, UnknownGroup, UnknownTopic
from tests.control.rest.memory_manager import NOW


class MemoryAnswer:
    """The lines of an answer."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = iter(lines)

    def __next__(self) -> dict[str, Any]:
        return next(self.lines)

    def close(self) -> None:
        pass


class MemoryBroker:
    """One topic, orders, and one group, reports."""

    def topics(self, *, internal: bool = False) -> TopicList:
        return TopicList(items=[TopicSummary(name="orders", partitions=1)])

    def topic(self, name: str) -> Topic:
        if name != "orders":
            message = f"there is no topic '{name}'"
            raise UnknownTopic(message)
        return Topic(name=name, partitions=[Partition(partition=0, beginning=0, end=1, leader=1)])

    def create_topic(self, new: NewTopic) -> Topic:
        if new.name == "orders":
            message = "topic 'orders' already exists"
            raise BrokerRefused(message)
        return Topic(name=new.name, partitions=[], config={**new.config})

    def delete_topic(self, name: str) -> None:
        self.topic(name)

    def messages(self, topic: str, query: MessageQuery) -> MessageList:
        self.topic(topic)
        found = Message(partition=0, offset=0, timestamp=NOW, value="1", document=1)
        return MessageList(items=[found], scanned=1, complete=True)

    def query(self, request: QueryRequest, rows: Mapping[str, Any]) -> MemoryAnswer:
        if "SELECT" not in request.sql.upper():
            message = "this is not Spark SQL"
            raise BadExpression(message)
        return MemoryAnswer([{"columns": [{"name": "n", "type": "int"}]}, {"rows": [{"n": 1}]}, {"done": True}])

    def produce(self, topic: str, record: Record) -> Produced:
        self.topic(topic)
        return Produced(partition=record.partition or 0, offset=1)

    def groups(self) -> GroupList:
        return GroupList(items=[GroupSummary(name="reports", state="empty")])

    def group(self, name: str) -> Group:
        if name != "reports":
            message = f"there is no group '{name}'"
            raise UnknownGroup(message)
        return Group(name=name, state="empty", lag=1)

    def reset(self, group: str, reset: GroupReset) -> Group:
        self.topic(reset.topic)
        return self.group(group)
