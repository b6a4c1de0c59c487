"""Consumer groups, with librdkafka (loaded with this module)."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from penstock.control.api.topics import Group, GroupList, GroupPartition, GroupReset, GroupSummary, Member
from penstock.control.broker.client import KafkaClient
from penstock.control.broker.positions import start_offsets
from penstock.errors import BrokerRefused, UnknownGroup, choices

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription, TopicMetadata

_Partition = tuple[str, int]


def list_groups(client: KafkaClient) -> GroupList:
    """List the groups with their states, members and lags."""
    states = _states(client)
    described = _describe_all(client, list(states))
    committed = _committed_of(client, list(states))
    topics = client.metadata()
    # A group may have offsets of deleted topics.
    there = {each for offsets in committed.values() for each in offsets if _exists(each, topics)}
    ends = client.offsets(sorted(there), "end")
    items = [
        GroupSummary(
            name=name,
            state=state,
            lag=_lag(committed[name], ends) if name in committed else None,
            members=len(described[name].members) if name in described else None,
            topics=sorted({topic for topic, _ in {*committed.get(name, ()), *_owners(described.get(name))}}),
        )
        for name, state in sorted(states.items())
    ]
    return GroupList(items=items)


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
    if name in _states(client):
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
    names = sorted(_states(client))
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
    owners = _owners(about)
    known = sorted({*committed, *owners})
    topics = client.metadata()
    there = [each for each in known if _exists(each, topics)]
    ends = client.offsets(there, "end")
    return [_row(each, committed.get(each), ends.get(each), owners.get(each)) for each in known]


def _row(partition: _Partition, committed: int | None, end: int | None, member: str | None) -> GroupPartition:
    lag = None if committed is None or end is None else max(0, end - committed)
    topic, number = partition
    return GroupPartition(topic=topic, partition=number, committed=committed, end=end, lag=lag, member=member)


def _exists(partition: _Partition, topics: Mapping[str, TopicMetadata]) -> bool:
    topic, number = partition
    return topic in topics and number in topics[topic].partitions


def _owners(about: ConsumerGroupDescription | None) -> dict[_Partition, str]:
    return {
        (each.topic, each.partition): member.member_id
        for member in (about.members if about else ())
        for each in member.assignment.topic_partitions
    }


def _lag(committed: Mapping[_Partition, int], ends: Mapping[_Partition, int]) -> int:
    return sum(max(0, ends[each] - offset) for each, offset in committed.items() if each in ends)


def _states(client: KafkaClient) -> dict[str, str]:
    """Return the state of each group."""
    with client.translated("consumer groups"):
        found = client.admin.list_consumer_groups(**client.patience).result()
        for error in found.errors:
            raise error if isinstance(error, KafkaException) else KafkaException(error)
    return {str(each.group_id): _state(each) for each in found.valid}


def _describe_all(client: KafkaClient, names: list[str]) -> dict[str, ConsumerGroupDescription]:
    """Return the groups that can be described: one may be deleted in between, or not be this user's."""
    if not names:
        return {}
    asked = client.admin.describe_consumer_groups(names, **client.patience)
    return {name: future.result() for name, future in asked.items() if future.exception() is None}


def _committed_of(client: KafkaClient, names: list[str]) -> dict[str, dict[_Partition, int]]:
    """Return the committed offsets of groups; librdkafka asks for one group at a time, so all are in flight at once."""
    asked = {name: _ask_committed(client, name) for name in names}
    return {name: _offsets_in(future.result()) for name, future in asked.items() if future.exception() is None}


def _committed(client: KafkaClient, group: str) -> dict[_Partition, int]:
    with client.translated(f"group '{group}'"):
        return _offsets_in(_ask_committed(client, group).result())


def _ask_committed(client: KafkaClient, group: str) -> Future[ConsumerGroupTopicPartitions]:
    asked = client.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], **client.patience)
    (future,) = asked.values()
    return future


def _offsets_in(found: ConsumerGroupTopicPartitions) -> dict[_Partition, int]:
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions or () if each.offset >= 0}


def _state(group: Any) -> str:
    return str(group.state.name).lower().replace("_", " ")
