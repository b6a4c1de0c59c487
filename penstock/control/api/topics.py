"""Topics and consumer groups of the log, through Kafka's protocol."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from penstock.control.api.fields import Query, Request, Response, Text, Time

TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Condition = Annotated[str, StringConstraints(min_length=1, max_length=5_000, pattern=r"^[^\x00]+$")]
_LARGEST = 2**63 - 1


class TopicFigures(Response):
    """How large a topic is, how fast it grows, and how long it keeps records. What is not known is null."""

    messages: int = Field(default=0, description="offsets between the beginnings and the ends of its partitions")
    bytes: int | None = Field(default=None, description="size on the disk of the broker")
    rate: float | None = Field(default=None, description="messages per second, once the list was asked for twice")
    retention_ms: int | None = Field(default=None, description="-1: records are kept for ever")
    cleanup_policy: str | None = None


class TopicSummary(TopicFigures):
    """A topic in a list."""

    name: str
    partitions: int
    internal: bool = False


class TopicList(Response):
    """All topics."""

    items: list[TopicSummary]


class Partition(Response):
    """A partition: its first offset, and the one after its last."""

    partition: int
    beginning: int
    end: int
    leader: int
    replicas: list[int] = []
    in_sync: list[int] = []
    bytes: int | None = None


class NewTopic(Request):
    """A topic to create. Without a number of replicas it is the broker's default."""

    name: TopicName
    partitions: int = Field(default=1, ge=1, le=10_000)
    replicas: int | None = Field(default=None, ge=1, le=100)
    config: dict[str, str] = Field(default={}, description="such as retention.ms or cleanup.policy")


class Topic(TopicFigures):
    """A topic with its partitions and the configuration that is set on it."""

    name: str
    partitions: list[Partition]
    config: dict[str, str | None] = {}


class Header(Response):
    """A header of a record; base64 if it is not UTF-8."""

    key: str
    value: str | None = None
    value_base64: str | None = None


class Message(Response):
    """A record. What is not UTF-8 is given in base64."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    partition: int
    offset: int
    timestamp: Time | None = None
    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: list[Header] = []
    document: Any = Field(default=None, alias="json", description="the value, if it is JSON")


class MessageList(Response):
    """Records by partition and offset, and how many were read to find them."""

    items: list[Message]
    scanned: int
    complete: bool = Field(description="false: the limits of one request ended the search before the end of the topic")


class MessageQuery(Query):
    """Which records: from where, how many, and which of them.

    Without `offset` and `time`, `from` is the beginning, or the end for the newest ones.
    """

    start: str = Field(default="end", alias="from", pattern="^(beginning|end)$")
    partition: int | None = Field(default=None, ge=0, le=2**31 - 1)
    offset: int | None = Field(default=None, ge=0, le=_LARGEST)
    time: Time | None = Field(default=None, description="from the first record of this time on")
    limit: int = Field(default=50, ge=1, le=1_000)
    key: Text | None = Field(default=None, description="only records with this key")
    contains: Text | None = Field(default=None, description="only records whose value contains this text")
    where: Condition | None = Field(
        default=None,
        description="Spark SQL over key, value, partition, offset, timestamp, headers and the fields of the value",
    )

    @model_validator(mode="after")
    def _one_start(self) -> MessageQuery:
        if self.offset is not None and self.time is not None:
            message = "give offset or time, not both"
            raise ValueError(message)
        return self


class TailQuery(Query):
    """Which new records of a topic are sent as they come."""

    partition: int | None = Field(default=None, ge=0, le=2**31 - 1)
    key: Text | None = Field(default=None, description="only records with this key")
    contains: Text | None = Field(default=None, description="only records whose value contains this text")
    rate: int = Field(default=50, ge=1, le=1_000, description="most messages per second; others are counted as missed")


class Record(Request):
    """A record to produce."""

    value: str | None = Field(default=None, max_length=1_000_000, description="null deletes the key")
    key: str | None = Field(default=None, max_length=10_000)
    headers: dict[str, str] = {}
    partition: int | None = Field(default=None, ge=0, le=2**31 - 1)


class Produced(Response):
    """Where a record was stored."""

    partition: int
    offset: int


class GroupSummary(Response):
    """A consumer group in a list."""

    name: str
    state: str
    lag: int | None = Field(default=None, description="records that it has not read yet, of all its partitions")
    members: int | None = None
    topics: list[str] = []


class GroupList(Response):
    """All consumer groups."""

    items: list[GroupSummary]


class Member(Response):
    """A member of a group."""

    member: str
    client: str
    host: str


class GroupPartition(Response):
    """How far a group has read a partition."""

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None
    lag: int | None = None
    member: str | None = None


class Group(Response):
    """A consumer group: its members, and its lag by partition."""

    name: str
    state: str
    lag: int
    members: list[Member] = []
    partitions: list[GroupPartition] = []


class GroupReset(Request):
    """New committed offsets of a group without members: exactly one of `to`, `offset` and `time`."""

    topic: TopicName
    to: str | None = Field(default=None, pattern="^(beginning|end)$")
    offset: int | None = Field(default=None, ge=0, le=_LARGEST)
    time: Time | None = None
    partition: int | None = Field(default=None, ge=0, le=2**31 - 1)

    @model_validator(mode="after")
    def _one_position(self) -> GroupReset:
        if sum(each is not None for each in (self.to, self.offset, self.time)) != 1:
            message = "give exactly one of to, offset and time"
            raise ValueError(message)
        return self
