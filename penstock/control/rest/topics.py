"""Topics and consumer groups of the log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response
from starlette.requests import Request

from penstock.control.api.topics import (
    Group,
    GroupList,
    GroupReset,
    MessageList,
    MessageQuery,
    NewTopic,
    Produced,
    Record,
    Topic,
    TopicList,
    TopicName,
)
from penstock.control.broker.broker import Broker
from penstock.control.rest.documentation import location, operation
from penstock.errors import NoBroker

TopicPath = Annotated[TopicName, Path(description="name of the topic")]
GroupPath = Annotated[
    str, Path(min_length=1, max_length=249, pattern=r"^[^\x00-\x1f\x7f/]+$", description="name of the consumer group")
]

router = APIRouter(tags=["log"])


async def the_broker(request: Request) -> Broker:
    """Return the log of the job manager; one without a log is a problem."""
    broker: Broker | None = request.app.state.broker
    if broker is None:
        message = "this job manager has no log"
        raise NoBroker(message, hint="start it with --log ADDRESS, or use `penstock up`")
    return broker


TheBroker = Annotated[Broker, Depends(the_broker)]


@router.get("/topics", **operation("list_topics", "viewer", 409))
def list_topics(
    broker: TheBroker, internal: Annotated[bool, Query(description="include internal topics")] = False
) -> TopicList:
    """List the topics of the log."""
    return broker.topics(internal=internal)


@router.post(
    "/topics", status_code=201, **operation("create_topic", "operator", 409, responses={201: location("topic")})
)
def create_topic(body: NewTopic, broker: TheBroker, response: Response) -> Topic:
    """Create a topic."""
    made = broker.create_topic(body)
    response.headers["Location"] = f"/api/v1/topics/{made.name}"
    return made


@router.delete("/topics/{topic}", status_code=204, **operation("delete_topic", "admin", 404, 409))
def delete_topic(topic: TopicPath, broker: TheBroker) -> None:
    """Delete a topic with all its records."""
    broker.delete_topic(topic)


@router.get("/topics/{topic}", **operation("get_topic", "viewer", 404, 409))
def get_topic(topic: TopicPath, broker: TheBroker) -> Topic:
    """Return a topic with its partitions and their offsets."""
    return broker.topic(topic)


@router.get("/topics/{topic}/messages", **operation("list_messages", "viewer", 404, 409))
def list_messages(topic: TopicPath, query: Annotated[MessageQuery, Query()], broker: TheBroker) -> MessageList:
    """Read records of a topic: the newest, or from an offset or a time on, filtered by key, text or SQL."""
    return broker.messages(topic, query)


@router.post("/topics/{topic}/messages", status_code=201, **operation("produce_message", "operator", 404, 409))
def produce_message(topic: TopicPath, body: Record, broker: TheBroker) -> Produced:
    """Write a record to a topic that exists."""
    return broker.produce(topic, body)


@router.get("/groups", **operation("list_groups", "viewer", 409))
def list_groups(broker: TheBroker) -> GroupList:
    """List the consumer groups of the log."""
    return broker.groups()


@router.get("/groups/{group}", **operation("get_group", "viewer", 404, 409))
def get_group(group: GroupPath, broker: TheBroker) -> Group:
    """Return a consumer group with its members, committed offsets and lag."""
    return broker.group(group)


@router.post("/groups/{group}/reset", **operation("reset_group", "operator", 404, 409))
def reset_group(group: GroupPath, body: GroupReset, broker: TheBroker) -> Group:
    """Set the committed offsets of a group that has no members."""
    return broker.reset(group, body)
