"""FindCoordinator, and what members of a group say: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.events import Heartbeat, Join, Leave, Sync
from penstock.log.handlers import group_admin
from penstock.log.protocol.messages import distinct, given

if TYPE_CHECKING:
    from penstock.log.calls import Call

Fields = dict[str, Any]
_MILLISECOND = timedelta(milliseconds=1)
_COORDINATED = {
    0: ("GROUP", ErrorCode.group_authorization_failed),
    1: ("TRANSACTIONAL_ID", ErrorCode.transactional_id_authorization_failed),
}


async def find_coordinator(call: Call, request: Any) -> Fields:
    """Name the broker that looks after groups and transactions: there is one."""
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
    """Wait for the leader's assignment, or bring it."""
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
    """Keep a member's session alive, and tell it of a rebalance."""
    event = Heartbeat(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=given(request, "group_instance_id", None) or None,
    )
    return {"error_code": call.broker.groups.tell(_readable_group(call, request.group_id), event)}


async def leave_group(call: Call, request: Any) -> Fields:
    """Take members out of the group; before v3 a request is one member's own."""
    group_id = _readable_group(call, request.group_id)
    members = [await _leave(call, group_id, each) for each in given(request, "members", [request])]
    return {"error_code": members[0]["error_code"] if call.version < 3 else ErrorCode.none, "members": members}


async def _leave(call: Call, group_id: str, member: Any) -> Fields:
    instance_id = given(member, "group_instance_id", None) or None
    if group_id in call.broker.groups.consumers:
        error = await call.broker.groups.remove_consumer(group_id, member.member_id, instance_id)
    else:
        error = call.broker.groups.tell(group_id, Leave(member_id=member.member_id, instance_id=instance_id))
    return {"member_id": member.member_id, "group_instance_id": instance_id, "error_code": error}


def _readable_group(call: Call, group_id: str) -> str:
    if not group_id:
        raise LogError(ErrorCode.invalid_group_id, "a group needs a name")
    if not call.allowed("READ", "GROUP", group_id):
        raise LogError(ErrorCode.group_authorization_failed, f"READ on group {group_id!r} is not allowed")
    return group_id


HANDLERS = {
    "find_coordinator": find_coordinator,
    "join_group": join_group,
    "sync_group": sync_group,
    "heartbeat": heartbeat,
    "leave_group": leave_group,
    **group_admin.HANDLERS,
}
