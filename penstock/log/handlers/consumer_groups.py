"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.consumer.assignors import ASSIGNORS, preferred_assignor
from penstock.log.groups.consumer.state import JOINING, LEFT_FOR_A_WHILE, ConsumerGroup, Heartbeat, Member, Partitions
from penstock.log.protocol.messages import Fields, distinct, given

if TYPE_CHECKING:
    from penstock.log.request_context import Call

TYPE = "consumer"
_MILLISECOND = timedelta(milliseconds=1)
# Kafka's numbers of the operations on groups; a set of them is sent as bits.
_OPERATIONS = {"READ": 3, "DELETE": 6, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11}
_NOT_ASKED = -(2**31)
_CONSUMER_PROTOCOL = 1


async def consumer_group_heartbeat(call: Call, request: Any) -> Fields:
    """Renew a member's session, and reconcile its assignment one step."""
    if not call.allowed("READ", "GROUP", request.group_id):
        raise LogError(ErrorCode.group_authorization_failed, f"READ on group {request.group_id!r} is not allowed")
    beat = _heartbeat(call, request)
    _check(call, request, beat)
    _check_topics(call, beat.topics or ())
    answer = await call.broker.groups.consumer_heartbeat(request.group_id, beat, lambda name: _sees(call, name))
    topics = answer.assignment
    return {
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": answer.heartbeat_interval,
        "assignment": None if topics is None else {"topic_partitions": _by_topic(topics)},
    }


def _heartbeat(call: Call, request: Any) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        member_id=request.member_id or (str(uuid4()) if call.version == 0 and request.member_epoch == 0 else ""),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout=request.rebalance_timeout // _MILLISECOND,
        topics=None if names is None else frozenset(names),
        regex=given(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None if owned is None else frozenset((one.topic_id, index) for one in owned for index in one.partitions),
        client_id=call.client_id,
        client_host=f"/{call.host}",  # as Java writes an address
    )


def _check(call: Call, request: Any, beat: Heartbeat) -> None:
    wrong = _mistake(beat) if request.group_id else "a group needs a name"
    if wrong:
        raise LogError(ErrorCode.invalid_request, wrong)
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        known = ", ".join(call.broker.groups.consumers.settings(request.group_id).assignors)
        message = f"there is no assignor {beat.assignor!r}; there are {known}"
        raise LogError(ErrorCode.unsupported_assignor, message)


def _mistake(beat: Heartbeat) -> str | None:
    mistakes = {
        "a member needs an id": not beat.member_id,
        "an instance id cannot be empty": beat.instance_id == "",
        "a rack id cannot be empty": beat.rack_id == "",
        f"there is no member epoch {beat.epoch}": beat.epoch < LEFT_FOR_A_WHILE,
        "only a static member can leave for a while": beat.epoch == LEFT_FOR_A_WHILE and beat.instance_id is None,
    }
    if beat.epoch == JOINING:
        mistakes |= {
            "a member that joins names its rebalance timeout": beat.rebalance_timeout < 0,
            "a member that joins owns no partitions": beat.owned is None or bool(beat.owned),
            "a member that joins subscribes to topics": beat.topics is None and beat.regex is None,
        }
    return next((text for text, is_made in mistakes.items() if is_made), None)


def _check_topics(call: Call, names: Any) -> None:
    hidden = sorted(name for name in names if not _sees(call, name))
    if hidden:
        raise LogError(ErrorCode.topic_authorization_failed, f"DESCRIBE of topics {', '.join(hidden)} is not allowed")


def _sees(call: Call, topic: str) -> bool:
    return call.allowed("DESCRIBE", "TOPIC", topic)


def _by_topic(partitions: Partitions) -> list[Fields]:
    found = groupby(sorted(partitions), lambda each: each[0])
    return [{"topic_id": topic, "partitions": [index for _, index in places]} for topic, places in found]


async def consumer_group_describe(call: Call, request: Any) -> Fields:
    """Describe groups and their members."""
    wants_operations = request.include_authorized_operations
    return {"groups": [_described(call, group_id, wants_operations) for group_id in distinct(request.group_ids)]}


def _described(call: Call, group_id: str, wants_operations: bool) -> Fields:
    if not call.allowed("DESCRIBE", "GROUP", group_id):
        return _undescribed(group_id, ErrorCode.group_authorization_failed, "DESCRIBE of the group is not allowed")
    group = call.broker.groups.consumers.all.get(group_id)
    if group is None:
        other = "is not a consumer group" if group_id in call.broker.groups.groups else "not found"
        return _undescribed(group_id, ErrorCode.group_id_not_found, f"Group {group_id} {other}.")
    names = {topic.id: name for name, topic in call.broker.store.topics.items()}
    parts = frozenset().union(*(each.owned | group.target.get(each.id, frozenset()) for each in group.members.values()))
    if any(not _sees(call, names[topic]) for topic, _ in parts if topic in names):
        return _undescribed(
            group_id, ErrorCode.topic_authorization_failed, "DESCRIBE of the group's topics is not allowed"
        )
    default = call.broker.groups.consumers.settings(group_id).assignors[0]
    operations = call.allowed_operations(_OPERATIONS, "GROUP", group_id) if wants_operations else _NOT_ASKED
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": preferred_assignor(group.members.values(), default),
        "members": [_member(group, member, names) for member in group.members.values()],
        "authorized_operations": operations,
    }


def _undescribed(group_id: str, code: ErrorCode, message: str) -> Fields:
    return {"group_id": group_id, "error_code": code, "error_message": message}


def _member(group: ConsumerGroup, member: Member, names: dict[UUID, str]) -> Fields:
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.regex,
        "assignment": _named(member.assigned, names),
        "target_assignment": _named(group.target.get(member.id, frozenset()), names),
        "member_type": _CONSUMER_PROTOCOL,
    }


def _named(partitions: Partitions, names: dict[UUID, str]) -> Fields:
    topics = [
        {**each, "topic_name": names[each["topic_id"]]} for each in _by_topic(partitions) if each["topic_id"] in names
    ]
    return {"topic_partitions": topics}


def listed_consumers(call: Call, states: set[str], types: set[str], sees_all: bool) -> list[Fields]:
    """Return the entries of ListGroups for consumer groups of some states and types, by default of all."""
    if types and TYPE not in types:
        return []
    return [
        {"group_id": group.id, "protocol_type": TYPE, "group_state": group.state.value, "group_type": TYPE}
        for group in call.broker.groups.consumers.all.values()
        if (not states or group.state.lower() in states) and (sees_all or call.allowed("DESCRIBE", "GROUP", group.id))
    ]


HANDLERS = {
    "consumer_group_heartbeat": consumer_group_heartbeat,
    "consumer_group_describe": consumer_group_describe,
}
