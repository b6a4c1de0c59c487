"""Consumer groups, with librdkafka (loaded with this module)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from penstock.control.api.topics import Group, GroupList, GroupPartition, GroupReset, GroupSummary, Member
from penstock.control.broker.client import KafkaClient
from penstock.control.broker.positions import start_offsets
from penstock.errors import BrokerRefused, UnknownGroup, choices

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

_Partition = tuple[str, int]


def list_groups(client: KafkaClient) -> GroupList:
    """List the groups and their states."""
    with client.translated("consumer groups"):
        found = client.admin.list_consumer_groups(**client.patience).result()
        for error in found.errors:
            raise error if isinstance(error, KafkaException) else KafkaException(error)
    groups = [GroupSummary(name=str(each.group_id), state=_state(each)) for each in found.valid]
    return GroupList(items=sorted(groups, key=lambda group: group.name))


def describe_group(client: KafkaClient, name: str) -> Group:
    """Return the members of a group, its committed offsets and its lag."""
    about = _describe(client, name)
    partitions = _progress(client, about)
    return Group(
        name=name,
        state=_state(about),
        lag=sum(each.lag or 0 for each in partitions),
        members=[Member(member=each.member_id, client=each.client_id, host=each.host) for each in about.members],
        partitions=partitions,
    )


def reset_group(client: KafkaClient, name: str, reset: GroupReset) -> Group:
    """Set the committed offsets of a group; one with members is refused, one that is not there is created."""
    partitions = client.partitions(reset.topic, reset.partition)
    wanted = start_offsets(client, reset.topic, partitions, to=reset.to, offset=reset.offset, time=reset.time)
    if any(group.name == name for group in list_groups(client).items):
        _refuse_if_active(_describe(client, name))
    offsets = [TopicPartition(reset.topic, number, offset) for number, offset in wanted.items()]
    with client.translated(f"group '{name}'"):
        request = ConsumerGroupTopicPartitions(name, offsets)
        answer = client.settle(client.admin.alter_consumer_group_offsets([request], **client.patience))
        for each in answer.topic_partitions:
            if each.error:
                raise KafkaException(each.error)
    return describe_group(client, name)


def _describe(client: KafkaClient, name: str) -> ConsumerGroupDescription:
    names = [group.name for group in list_groups(client).items]
    if name not in names:
        message = f"there is no group '{name}' at {client.connection.servers}"
        raise UnknownGroup(message, hint=choices("groups there", names[:20], name))
    with client.translated(f"group '{name}'"):
        about: ConsumerGroupDescription = client.settle(
            client.admin.describe_consumer_groups([name], **client.patience)
        )
    return about


def _refuse_if_active(about: ConsumerGroupDescription) -> None:
    if about.members:
        who = ", ".join(f"{each.client_id} at {each.host}" for each in about.members)
        message = f"group '{about.group_id}' has active members: {who}"
        raise BrokerRefused(message, hint="stop them first; nothing was changed")


def _progress(client: KafkaClient, about: ConsumerGroupDescription) -> list[GroupPartition]:
    committed = _committed(client, about.group_id)
    owners = {
        (each.topic, each.partition): member.member_id
        for member in about.members
        for each in member.assignment.topic_partitions
    }
    known = sorted({*committed, *owners})
    topics = client.metadata()
    # A group may have offsets of deleted topics.
    there = [(topic, each) for topic, each in known if topic in topics and each in topics[topic].partitions]
    ends = client.offsets(there, "end")
    return [_row(each, committed.get(each), ends.get(each), owners.get(each)) for each in known]


def _row(partition: _Partition, committed: int | None, end: int | None, member: str | None) -> GroupPartition:
    lag = None if committed is None or end is None else max(0, end - committed)
    topic, number = partition
    return GroupPartition(topic=topic, partition=number, committed=committed, end=end, lag=lag, member=member)


def _committed(client: KafkaClient, group: str) -> dict[_Partition, int]:
    with client.translated(f"group '{group}'"):
        asked = client.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], **client.patience)
        found = client.settle(asked).topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def _state(group: Any) -> str:
    return str(group.state.name).lower().replace("_", " ")
