"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import Commit
from penstock.log.groups.classic.group import CONSUMER, State
from penstock.log.groups.formats import Committed, OffsetKey
from penstock.log.groups.offsets import TopicPartition
from penstock.log.protocol.messages import Fields, distinct, given, grouped
from penstock.log.request_context import Call

if TYPE_CHECKING:
    from penstock.log.request_context import Call

Codes = dict[TopicPartition, ErrorCode]
Write = Callable[[dict[TopicPartition, Committed]], Awaitable[None]]
_MILLISECOND = timedelta(milliseconds=1)


def topic_name(call: Call, topic: Any) -> str | None:
    """Return the name of a topic that a request has by name or id; None if the id is unknown."""
    name: str | None = given(topic, "name", None)
    if name is not None:
        return name
    topic_id = given(topic, "topic_id", None)
    return None if topic_id is None else call.broker.store.topics.names.get(topic_id.bytes)


def unnamed(call: Call, topics: Iterable[Any]) -> list[Any]:
    """Return those of the topics of a request whose ids are unknown."""
    return [topic for topic in topics if topic_name(call, topic) is None]


def topic_fields(call: Call, name: str) -> Fields:
    """Return the fields that identify a topic in a reply: name and id."""
    topic = call.broker.store.topics.get(name)
    return {"name": name, "topic_id": topic.id if topic is not None else None}


async def offset_commit(call: Call, request: Any) -> Fields:
    """Commit offsets of a group."""
    event = Commit(
        generation=given(request, "generation_id_or_member_epoch", -1),
        member_id=given(request, "member_id", ""),
        instance_id=given(request, "group_instance_id", None) or None,
        by_epoch=call.version >= 9,
    )
    retention = given(request, "retention_time", -_MILLISECOND) // _MILLISECOND

    async def write(offsets: dict[TopicPartition, Committed]) -> None:
        await call.broker.groups.commit(request.group_id, offsets)

    return await commit_offsets(call, request, event, write, retention)


async def commit_offsets(call: Call, request: Any, event: Commit, write: Write, retention: int = -1) -> Fields:
    """Pass the valid offsets of a request to `write`, and return a code for every partition."""
    asked = list(_asked(call, request))
    codes = {each: _uncommittable(call, *each, value) for each, value in asked}
    accepted = {each: value for each, value in asked if not codes[each]}
    error = _refusal(call, request.group_id, event)
    if accepted and not error:
        now = call.broker.clock()
        expires = now + retention if retention >= 0 else -1
        error = await _try(write, {each: _committed(value, now, expires) for each, value in accepted.items()})
    unnamed_topics = unnamed(call, request.topics)
    unknown = [_unknown(topic, [each.partition_index for each in topic.partitions]) for topic in unnamed_topics]
    return {"topics": _topic_codes(call, codes | dict.fromkeys(accepted, error)) + unknown}


def _asked(call: Call, request: Any) -> Iterable[tuple[TopicPartition, Any]]:
    for topic in request.topics:
        name = topic_name(call, topic)
        if name is not None:
            yield from (((name, each.partition_index), each) for each in topic.partitions)


def _refusal(call: Call, group_id: str, event: Commit) -> ErrorCode:
    if not call.allowed("READ", "GROUP", group_id):
        return ErrorCode.group_authorization_failed
    return call.broker.groups.check_commit(group_id, event)


def _uncommittable(call: Call, topic: str, partition: int, value: Any) -> ErrorCode:
    if not call.allowed("READ", "TOPIC", topic):
        return ErrorCode.topic_authorization_failed
    known = call.broker.store.topics.get(topic)
    if known is None or not 0 <= partition < known.partitions:
        return ErrorCode.unknown_topic_or_partition
    too_large = len((value.committed_metadata or "").encode()) > call.broker.groups.settings.max_metadata_bytes
    return ErrorCode.offset_metadata_too_large if too_large else ErrorCode.none


def _committed(value: Any, now: int, expires: int) -> Committed:
    epoch = given(value, "committed_leader_epoch", -1)
    return Committed(value.committed_offset, epoch, value.committed_metadata or "", now, expires)


async def _try(write: Write, offsets: dict[TopicPartition, Committed]) -> ErrorCode:
    try:
        await write(offsets)
    except LogError as failure:
        return failure.code
    return ErrorCode.none


def _topic_codes(call: Call, codes: Codes) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
    return [{**topic_fields(call, topic), "partitions": partitions} for topic, partitions in topics.items()]


def _unknown(topic: Any, indexes: Iterable[int]) -> Fields:
    nothing = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    partitions = [{"partition_index": index, "error_code": ErrorCode.unknown_topic_id, **nothing} for index in indexes]
    return {"topic_id": topic.topic_id, "partitions": partitions}


async def offset_fetch(call: Call, request: Any) -> Fields:
    """Return committed offsets; since v8 for several groups at once."""
    stable_only = given(request, "require_stable", False)
    if call.version >= 8:
        groups = grouped(request.groups, lambda each: each.group_id).values()
        return {"groups": [_fetched(call, same[0], _all_topics(same), stable_only) for same in groups]}
    return _fetched(call, request, request.topics, stable_only)


def _all_topics(asked: Iterable[Any]) -> list[Any] | None:
    if any(each.topics is None for each in asked):
        return None
    return [topic for each in asked for topic in each.topics]


def _fetched(call: Call, asked: Any, asked_topics: Iterable[Any] | None, stable_only: bool) -> Fields:
    group_id = asked.group_id
    error = _unfetchable(call, asked)
    if asked_topics is None:
        known = () if error else call.broker.groups.offsets.of(group_id)
        wanted = [each for each in known if call.allowed("DESCRIBE", "TOPIC", each[0])]
    else:
        named = ((topic_name(call, topic), topic.partition_indexes) for topic in asked_topics)
        wanted = distinct((name, index) for name, indexes in named if name is not None for index in indexes)
    topics: dict[str, list[Fields]] = {}
    for topic, partition in wanted:
        code = error or _unreadable(call, OffsetKey(group_id, topic, partition), stable_only)
        topics.setdefault(topic, []).append(_fetched_partition(call, group_id, topic, partition, code))
    replies = [{**topic_fields(call, topic), "partitions": partitions} for topic, partitions in topics.items()]
    unknown = [_unknown(topic, topic.partition_indexes) for topic in unnamed(call, asked_topics or ())]
    return {"group_id": group_id, "error_code": error, "topics": replies + unknown}


def _unfetchable(call: Call, asked: Any) -> ErrorCode:
    if not call.allowed("DESCRIBE", "GROUP", asked.group_id):
        return ErrorCode.group_authorization_failed
    member_id, epoch = given(asked, "member_id", None), given(asked, "member_epoch", -1)
    return call.broker.groups.check_fetch(asked.group_id, member_id, epoch)


def _unreadable(call: Call, key: OffsetKey, stable_only: bool) -> ErrorCode:
    if not call.allowed("DESCRIBE", "TOPIC", key.topic):
        return ErrorCode.topic_authorization_failed
    undecided = stable_only and call.broker.groups.offsets.is_pending(key)
    return ErrorCode.unstable_offset_commit if undecided else ErrorCode.none


def _fetched_partition(call: Call, group_id: str, topic: str, partition: int, code: ErrorCode) -> Fields:
    nothing = Committed(-1)
    found = nothing if code else call.broker.groups.offsets.of(group_id).get((topic, partition), nothing)
    return {
        "partition_index": partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": code,
    }


async def offset_delete(call: Call, request: Any) -> Fields:
    """Delete offsets of topics that no member subscribes to."""
    subscribed = _check_deletable(call, request.group_id)
    codes = {
        (topic.name, each.partition_index): _undeletable(call, topic.name, each.partition_index, subscribed)
        for topic in request.topics
        for each in topic.partitions
    }
    await call.broker.groups.delete_offsets(request.group_id, [each for each, code in codes.items() if not code])
    return {"topics": _topic_codes(call, codes)}


def _check_deletable(call: Call, group_id: str) -> frozenset[str] | None:
    """Return the topics that the group subscribes to, None if unknown, or refuse."""
    if not call.allowed("DELETE", "GROUP", group_id):
        raise LogError(ErrorCode.group_authorization_failed, f"DELETE on group {group_id!r} is not allowed")
    if group_id in call.broker.groups.consumers:
        return call.broker.groups.consumers.subscribed_topics(group_id)
    group = call.broker.groups.groups.get(group_id)
    if group is None or group.state is State.DEAD:
        raise LogError(ErrorCode.group_id_not_found, f"there is no group {group_id!r}")
    if group.state is State.EMPTY:
        return frozenset()
    if group.protocol_type != CONSUMER:
        raise LogError(ErrorCode.non_empty_group, f"group {group_id!r} has members")
    return group.subscribed_topics()


def _undeletable(call: Call, topic: str, partition: int, subscribed: frozenset[str] | None) -> ErrorCode:
    if not call.allowed("READ", "TOPIC", topic):
        return ErrorCode.topic_authorization_failed
    known = call.broker.store.topics.get(topic)
    if known is None or not 0 <= partition < known.partitions:
        return ErrorCode.unknown_topic_or_partition
    read = subscribed is None or topic in subscribed
    return ErrorCode.group_subscribed_to_topic if read else ErrorCode.none


HANDLERS = {"offset_commit": offset_commit, "offset_fetch": offset_fetch, "offset_delete": offset_delete}
