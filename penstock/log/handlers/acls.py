"""DescribeAcls, CreateAcls, DeleteAcls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields
from penstock.log.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Authorizer,
    Operation,
    Pattern,
    Permission,
    Resource,
)

if TYPE_CHECKING:
    from penstock.log.request_context import Call


async def describe_acls(call: Call, request: Any) -> Fields:
    """List the ACLs that match a filter."""
    access = _access(call, "DESCRIBE")
    found = access.find(_filter(request))
    resources = groupby(found, key=lambda acl: (acl.resource, acl.name, acl.pattern))
    return {"error_code": ErrorCode.none, "resources": [_resource(*key, acls) for key, acls in resources]}


async def create_acls(call: Call, request: Any) -> Fields:
    """Add the valid ACLs of a request."""
    try:
        access = _access(call, "ALTER")
        read = [_read_acl(each) for each in request.creations]
        failed = _try(access.add, [acl for acl in read if isinstance(acl, Acl)])
    except LogError as error:
        return {"results": [_error(error) for _ in request.creations]}
    return {"results": [_error(failed if isinstance(acl, Acl) else acl) for acl in read]}


async def delete_acls(call: Call, request: Any) -> Fields:
    """Delete the ACLs that match filters."""
    results: list[Fields] = []
    gone: set[Acl] = set()
    for each in request.filters:
        try:
            # Each is reported by the first filter that deletes it.
            found = [acl for acl in _access(call, "ALTER").find(_filter(each)) if acl not in gone]
            gone.update(found)
            results.append({**_error(None), "matching_acls": [{**_error(None), **_line(acl)} for acl in found]})
        except LogError as error:
            results.append({**_error(error), "matching_acls": []})
    failed = _try(_access(call, "ALTER").remove, gone) if gone else None
    if failed:
        return {"filter_results": [{**_error(failed), "matching_acls": []} for _ in results]}
    return {"filter_results": results}


def _access(call: Call, operation: str) -> Authorizer:
    access: Authorizer | None = call.broker.security.access
    if access is None:
        raise LogError(ErrorCode.security_disabled, "authorization is disabled in this log; ACLs would have no effect")
    if not call.allowed(operation, "CLUSTER", CLUSTER_NAME):
        raise LogError(ErrorCode.cluster_authorization_failed, f"{operation} on the cluster is not allowed")
    return access


def _try(change: Callable[[Iterable[Acl]], None], acls: Iterable[Acl]) -> LogError | None:
    try:
        change(acls)
    except PenstockError as error:
        return LogError(ErrorCode.kafka_storage_error, error.message)
    return None


def _filter(asked: Any) -> AclFilter:
    try:
        return AclFilter(
            Resource(asked.resource_type_filter),
            asked.resource_name_filter,
            Pattern(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise LogError(ErrorCode.invalid_request, f"unknown value in the filter: {error}") from None


def _read_acl(given: Any) -> Acl | LogError:
    try:
        acl = Acl(
            Resource(given.resource_type),
            given.resource_name,
            Pattern(given.resource_pattern_type),
            given.principal,
            given.host,
            Operation(given.operation),
            Permission(given.permission_type),
        )
    except ValueError as error:
        return LogError(ErrorCode.invalid_request, f"unknown value in the ACL: {error}")
    why = _flaw(acl)
    return LogError(ErrorCode.invalid_request, why) if why else acl


def _flaw(acl: Acl) -> str:
    if 1 in (acl.resource, acl.operation, acl.permission) or acl.pattern in (Pattern.ANY, Pattern.MATCH):
        return "ANY and MATCH are only valid in filters"
    if not acl.name or not acl.host:
        return "an ACL needs a resource name and a host; '*' matches all"
    if acl.resource is Resource.CLUSTER and acl.name != CLUSTER_NAME:
        return f"the only cluster is named {CLUSTER_NAME}"
    kind, colon, name = acl.principal.partition(":")
    return "" if kind and colon and name else "a principal is written User:name, or User:* for all"


def _resource(kind: Resource, name: str, pattern: Pattern, acls: Iterable[Acl]) -> Fields:
    lines = [_line(acl) for acl in acls]
    return {"resource_type": int(kind), "resource_name": name, "pattern_type": int(pattern), "acls": lines}


def _line(acl: Acl) -> Fields:
    return {
        "resource_type": int(acl.resource),
        "resource_name": acl.name,
        "pattern_type": int(acl.pattern),
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }


def _error(error: LogError | None) -> Fields:
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


HANDLERS = {"describe_acls": describe_acls, "create_acls": create_acls, "delete_acls": delete_acls}
