"""Records for which a condition in SQL holds: a process of its own reads and filters them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from penstock.control.api.topics import Message, MessageList, MessageQuery
from penstock.control.broker.client import KafkaClient
from penstock.control.broker.console import Console
from penstock.control.broker.messages import MOST_SECONDS, first_offsets, in_order, shown_message, wants_newest


def filter_messages(client: KafkaClient, console: Console, topic: str, query: MessageQuery) -> MessageList:
    """Read records from a position on, or the newest, and return those for which the condition holds."""
    partitions = client.partitions(topic, query.partition)
    starts = first_offsets(client, topic, partitions, query)
    ends = client.offsets([(topic, each) for each in partitions], "end")
    newest = wants_newest(query)
    request = {
        "kind": "filter",
        "topic": topic,
        "where": query.where,
        "key": query.key,
        "contains": query.contains,
        "limit": query.limit,
        "newest": newest,
        "ranges": [[each, starts[each], ends[topic, each]] for each in partitions],
    }
    messages: list[Message] = []
    end: dict[str, Any] = {"scanned": 0, "complete": False}
    with closing(console.ask(request, MOST_SECONDS)) as answer:
        for line in answer:
            messages += map(_message, line.get("messages", ()))
            end = line if line.get("done") else end
    items = in_order(messages, query.limit, newest=newest)
    return MessageList(items=items, scanned=end["scanned"], complete=end["complete"])


def _message(record: Mapping[str, Any]) -> Message:
    headers = [(name, _bytes(value)) for name, value in record["headers"]]
    where = record["partition"], record["offset"], record["ms"]
    return shown_message(*where, _bytes(record["key"]), _bytes(record["value"]), headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
