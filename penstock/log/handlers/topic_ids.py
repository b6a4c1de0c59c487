"""Topics by their ids, in the newest versions of requests that name them in older ones."""

from __future__ import annotations

from typing import Any

from penstock.log.calls import Call
from penstock.log.protocol.messages import Fields, given


def topic_name(call: Call, topic: Any) -> str | None:
    """Return the name of a topic that a request has by name or by id; None if there is no topic of that id."""
    name: str | None = given(topic, "name", None)
    if name is not None:
        return name
    topic_id = given(topic, "topic_id", None)
    return None if topic_id is None else call.broker.store.topics.names.get(topic_id.bytes)


def unnamed(call: Call, request: Any) -> list[Any]:
    """Return the topics of a request that are not there under the id that it has for them."""
    return [topic for topic in request.topics or () if topic_name(call, topic) is None]


def topic_fields(call: Call, name: str) -> Fields:
    """Return what names a topic in an answer, whichever the version has."""
    topic = call.broker.store.topics.get(name)
    return {"name": name, "topic_id": topic.id if topic is not None else None}
