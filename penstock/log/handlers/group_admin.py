"""What administrators ask of groups: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.group import Group, Member, State
from penstock.log.handlers.consumer_groups import listed_consumers
from penstock.log.protocol.messages import distinct, given

if TYPE_CHECKING:
    from penstock.log.calls import Call

Fields = dict[str, Any]
_TYPE = "classic"
# Kafka's numbers of the operations that groups have; a set of them is sent as bits.
_OPERATIONS = {"READ": 3, "DELETE": 6, "DESCRIBE": 8}
_NOT_ASKED = -(2**31)
_TELLS_MISSING = 6  # the first version of DescribeGroups in which a group that is not there is an error


async def list_groups(call: Call, request: Any) -> Fields:
    """List the groups that the caller may see, perhaps only those of some states or types."""
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
    return {"groups": [*map(_listed, seen), *listed_consumers(call, states, types, sees_all)]}


def _listed(group: Group) -> Fields:
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
    if call.version >= _TELLS_MISSING and group_id not in call.broker.groups.groups:
        missing = {"error_code": ErrorCode.group_id_not_found, "error_message": f"there is no group {group_id!r}"}
        return {"group_id": group_id, "group_state": State.DEAD.value, **missing}
    group = call.broker.groups.groups.get(group_id) or Group(group_id, state=State.DEAD)
    chosen = group.state is State.STABLE
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol if chosen else "",
        "members": [_member(group, member, chosen) for member in group.members.values()],
        "authorized_operations": _operations(call, group_id) if wants_operations else _NOT_ASKED,
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


def _operations(call: Call, group_id: str) -> int:
    return sum(1 << bit for name, bit in _OPERATIONS.items() if call.allowed(name, "GROUP", group_id))


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


HANDLERS = {"list_groups": list_groups, "describe_groups": describe_groups, "delete_groups": delete_groups}
