"""Classic groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup; List-, Describe-, DeleteGroups."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import Heartbeat, Join, Leave, Sync
from penstock.log.groups.classic.group import Group, Member, State
from penstock.log.handlers.consumer_groups import listed_consumers
from penstock.log.protocol.messages import Fields, distinct, given

if TYPE_CHECKING:
    from penstock.log.request_context import Call

_MILLISECOND = timedelta(milliseconds=1)
_COORDINATED = {
    0: ("GROUP", ErrorCode.group_authorization_failed),
    1: ("TRANSACTIONAL_ID", ErrorCode.transactional_id_authorization_failed),
}
_TYPE = "classic"
# Kafka's numbers of the operations on groups; a set of them is sent as bits.
_OPERATIONS = {"READ": 3, "DELETE": 6, "DESCRIBE": 8}
_NOT_ASKED = -(2**31)
_REPORTS_MISSING = 6  # the first version of DescribeGroups in which a missing group is an error


async def find_coordinator(call: Call, request: Any) -> Fields:
    """Return the coordinator of groups and transactions: this broker."""
    kind = given(request, "key_type", 0)
    if call.version >= 4:
        return {"coordinators": [_coordinator(call, kind, key) for key in distinct(request.coordinator_keys)]}
    return _coordinator(call, kind, request.key)


def _coordinator(call: Call, kind: int, key: str) -> Fields:
    resource, refusal = _COORDINATED.get(kind, (None, ErrorCode.invalid_request))
    if resource is None or not call.allowed("DESCRIBE", resource, key):
        message = refusal.name.replace("_", " ")
        return {"key": key, "node_id": -1, "port": -1, "error_code": refusal, "error_message": message}
    node = call.broker
    return {"key": key, "node_id": node.node_id, "host": node.host, "port": node.port, "error_message": None}


async def join_group(call: Call, request: Any) -> Fields:
    """Wait for the group's next generation."""
    group_id = _readable_group(call, request.group_id)
    instance_id = given(request, "group_instance_id", None) or None
    joined = await call.broker.groups.join(group_id, _join(call, request, instance_id))
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [_listed(*member) for member in joined.members],
    }


def _join(call: Call, request: Any, instance_id: str | None) -> Join:
    session_timeout = request.session_timeout // _MILLISECOND
    rebalance_timeout = given(request, "rebalance_timeout", timedelta()) // _MILLISECOND
    return Join(
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=call.client_id,
        client_host=f"/{call.host}",  # as Java writes an address
        session_timeout=session_timeout,
        rebalance_timeout=rebalance_timeout if rebalance_timeout > 0 else session_timeout,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        new_id=f"{instance_id or call.client_id}-{uuid4()}",
        reserves_id=call.version >= 4,
        skips_assignment=call.version >= 9,
    )


def _listed(member_id: str, instance_id: str | None, subscription: bytes) -> Fields:
    return {"member_id": member_id, "group_instance_id": instance_id, "metadata": subscription}


async def sync_group(call: Call, request: Any) -> Fields:
    """Wait for the leader's assignment, or deliver it."""
    event = Sync(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=given(request, "group_instance_id", None) or None,
        protocol_type=given(request, "protocol_type", None),
        protocol=given(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    synced = await call.broker.groups.sync(_readable_group(call, request.group_id), event)
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(call: Call, request: Any) -> Fields:
    """Renew a member's session, and report a rebalance."""
    event = Heartbeat(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=given(request, "group_instance_id", None) or None,
    )
    return {"error_code": call.broker.groups.submit(_readable_group(call, request.group_id), event)}


async def leave_group(call: Call, request: Any) -> Fields:
    """Remove members from the group; before v3 a request is for one member."""
    group_id = _readable_group(call, request.group_id)
    members = [await _leave(call, group_id, each) for each in given(request, "members", [request])]
    return {"error_code": members[0]["error_code"] if call.version < 3 else ErrorCode.none, "members": members}


async def _leave(call: Call, group_id: str, member: Any) -> Fields:
    instance_id = given(member, "group_instance_id", None) or None
    if group_id in call.broker.groups.consumers:
        error = await call.broker.groups.remove_consumer(group_id, member.member_id, instance_id)
    else:
        error = call.broker.groups.submit(group_id, Leave(member_id=member.member_id, instance_id=instance_id))
    return {"member_id": member.member_id, "group_instance_id": instance_id, "error_code": error}


def _readable_group(call: Call, group_id: str) -> str:
    if not group_id:
        raise LogError(ErrorCode.invalid_group_id, "a group needs a name")
    if not call.allowed("READ", "GROUP", group_id):
        raise LogError(ErrorCode.group_authorization_failed, f"READ on group {group_id!r} is not allowed")
    return group_id


async def list_groups(call: Call, request: Any) -> Fields:
    """List the groups that the client may describe, optionally filtered by state and type."""
    states = {state.lower() for state in given(request, "states_filter", ())}
    types = {kind.lower() for kind in given(request, "types_filter", ())}
    sees_all = call.allowed("DESCRIBE", "CLUSTER", "kafka-cluster")
    seen = (
        group
        for group in call.broker.groups.groups.values()
        if (sees_all or call.allowed("DESCRIBE", "GROUP", group.id))
        and (not states or group.state.lower() in states)
        and (not types or _TYPE in types)
    )
    return {"groups": [*map(_listed_group, seen), *listed_consumers(call, states, types, sees_all)]}


def _listed_group(group: Group) -> Fields:
    return {
        "group_id": group.id,
        "protocol_type": group.protocol_type or "",
        "group_state": group.state.value,
        "group_type": _TYPE,
    }


async def describe_groups(call: Call, request: Any) -> Fields:
    """Describe groups and their members."""
    wants_operations = given(request, "include_authorized_operations", False)
    return {"groups": [_described(call, group_id, wants_operations) for group_id in distinct(request.groups)]}


def _described(call: Call, group_id: str, wants_operations: bool) -> Fields:
    if not call.allowed("DESCRIBE", "GROUP", group_id):
        return {"group_id": group_id, "error_code": ErrorCode.group_authorization_failed}
    if call.version >= _REPORTS_MISSING and group_id not in call.broker.groups.groups:
        missing = {"error_code": ErrorCode.group_id_not_found, "error_message": f"there is no group {group_id!r}"}
        return {"group_id": group_id, "group_state": State.DEAD.value, **missing}
    group = call.broker.groups.groups.get(group_id) or Group(group_id, state=State.DEAD)
    chosen = group.state is State.STABLE
    operations = call.allowed_operations(_OPERATIONS, "GROUP", group_id) if wants_operations else _NOT_ASKED
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol if chosen else "",
        "members": [_member(group, member, chosen) for member in group.members.values()],
        "authorized_operations": operations,
    }


def _member(group: Group, member: Member, chosen: bool) -> Fields:
    return {
        "member_id": member.id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": group.subscription(member) if chosen else b"",
        "member_assignment": member.assignment if chosen else b"",
    }


async def delete_groups(call: Call, request: Any) -> Fields:
    """Delete groups that have no members, with their offsets."""
    return {"results": [await _delete(call, group_id) for group_id in distinct(request.groups_names)]}


async def _delete(call: Call, group_id: str) -> Fields:
    try:
        allowed = call.allowed("DELETE", "GROUP", group_id)
        error = await call.broker.groups.delete(group_id) if allowed else ErrorCode.group_authorization_failed
    except LogError as failure:
        error = failure.code
    return {"group_id": group_id, "error_code": error}


HANDLERS = {
    "find_coordinator": find_coordinator,
    "join_group": join_group,
    "sync_group": sync_group,
    "heartbeat": heartbeat,
    "leave_group": leave_group,
    "list_groups": list_groups,
    "describe_groups": describe_groups,
    "delete_groups": delete_groups,
}
