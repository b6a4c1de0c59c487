"""The log, as the routes see it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.connectors.topics.connection import Connection
from penstock.control.api.queries import QueryRequest
from penstock.control.api.topics import (
    Group,
    GroupList,
    GroupReset,
    MessageList,
    MessageQuery,
    NewTopic,
    Produced,
    Record,
    TailQuery,
    Topic,
    TopicList,
)

if TYPE_CHECKING:
    from penstock.control.broker.client import KafkaClient
    from penstock.control.broker.console import Answer, Console
    from penstock.control.broker.tail import Tail
    from penstock.control.broker.topics import Topics


class Broker:
    """Reads and changes topics and groups through Kafka's protocol.

    Methods block and may be called from several threads. Raise UnknownTopic or UnknownGroup with the names that there
    are, NoBroker if none answers, and BrokerRefused if it refuses.
    """

    def __init__(self, address: str) -> None:
        self.connection = Connection.parse(address, "--log")
        self._starting = threading.Lock()

    def topics(self, *, internal: bool = False) -> TopicList:
        """List the topics."""
        return self._topics.summaries(internal=internal)

    def topic(self, name: str) -> Topic:
        """Return a topic with its partitions and its configuration."""
        return self._topics.describe(name)

    def create_topic(self, new: NewTopic) -> Topic:
        """Create a topic; one that exists is a BrokerRefused."""
        return self._topics.create(new)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        self._topics.delete(name)

    def messages(self, topic: str, query: MessageQuery) -> MessageList:
        """Read records of a topic."""
        from penstock.control.broker.filtered_messages import filter_messages
        from penstock.control.broker.messages import read_messages

        if query.where is not None:
            return filter_messages(self._client, self._console, topic, query)
        return read_messages(self._client, topic, query)

    def query(self, request: QueryRequest, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Answer:
        """Start to answer a query; `rows` are those of tables that are no topics. Raise what is wrong with it."""
        sources = {name: source.model_dump(by_alias=True) for name, source in request.sources.items()}
        given = {name: {"rows": list(found)} for name, found in rows.items()}
        asked = {"kind": "query", "sql": request.sql, "limit": request.limit, "sources": sources | given}
        return self._console.ask(asked, request.timeout)

    def close(self) -> None:
        """End what waits for the next query."""
        if "_console" in self.__dict__:
            self._console.close()

    def tail(self, topic: str, query: TailQuery) -> Tail:
        """Return the records that are written to a topic from now on."""
        from penstock.control.broker.tail import Tail

        return Tail(self._client, topic, query)

    def produce(self, topic: str, record: Record) -> Produced:
        """Write a record, and return once the broker has it."""
        from penstock.control.broker.messages import produce

        return produce(self._client, topic, record)

    def groups(self) -> GroupList:
        """List the consumer groups."""
        from penstock.control.broker.groups import list_groups

        return list_groups(self._client)

    def group(self, name: str) -> Group:
        """Return a consumer group with its lag."""
        from penstock.control.broker.groups import describe_group

        return describe_group(self._client, name)

    def reset(self, group: str, reset: GroupReset) -> Group:
        """Set the committed offsets of a group without members."""
        from penstock.control.broker.groups import reset_group

        return reset_group(self._client, group, reset)

    @property
    def _client(self) -> KafkaClient:
        with self._starting:
            return self._started

    @cached_property
    def _console(self) -> Console:
        from penstock.control.broker.console import Console

        return Console(self.connection)

    @cached_property
    def _topics(self) -> Topics:
        from penstock.control.broker.topics import Topics

        return Topics(self._client)

    @cached_property
    def _started(self) -> KafkaClient:
        # librdkafka takes memory and threads, which a manager that nobody asks for topics does not need.
        from penstock.control.broker.client import KafkaClient

        return KafkaClient(self.connection)
