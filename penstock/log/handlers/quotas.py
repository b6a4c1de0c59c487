"""DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields, distinct
from penstock.log.security.acls import CLUSTER_NAME
from penstock.log.security.quotas import DEFAULT, KEYS, Entity, Quotas

if TYPE_CHECKING:
    from penstock.log.request_context import Call

_FIELDS = {"user": "user", "client-id": "client_id"}


async def describe_client_quotas(call: Call, request: Any) -> Fields:
    """List the quotas whose entities match every component of a filter."""
    quotas = _quotas(call, "DESCRIBE_CONFIGS")
    wanted = {_field(each.entity_type): each for each in request.components}
    if len(wanted) < len(request.components):
        raise LogError(ErrorCode.invalid_request, "a filter names a kind of entity twice")
    found = [entity for entity in quotas.rules if _fits(entity, wanted, request.strict)]
    entries = [{"entity": _entity_data(each), "values": _values(quotas.rules[each])} for each in found]
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


async def alter_client_quotas(call: Call, request: Any) -> Fields:
    """Set and remove quotas, each entity on its own."""
    return {"entries": [_alter(call, each, request.validate_only) for each in distinct(request.entries)]}


def _alter(call: Call, entry: Any, validate_only: bool) -> Fields:
    same = [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity]
    try:
        quotas, entity, rates = _quotas(call, "ALTER_CONFIGS"), _read_entity(entry.entity), _read_rates(entry.ops)
        if not validate_only:
            quotas.change(entity, rates)
    except LogError as error:
        return {"error_code": error.code, "error_message": error.message, "entity": same}
    except PenstockError as error:
        return {"error_code": ErrorCode.kafka_storage_error, "error_message": error.message, "entity": same}
    return {"error_code": ErrorCode.none, "error_message": None, "entity": same}


def _quotas(call: Call, operation: str) -> Quotas:
    if not call.allowed(operation, "CLUSTER", CLUSTER_NAME):
        raise LogError(ErrorCode.cluster_authorization_failed, f"{operation} on the cluster is not allowed")
    quotas: Quotas = call.broker.security.quotas
    return quotas


def _field(entity_type: str) -> str:
    if entity_type not in _FIELDS:
        raise LogError(ErrorCode.invalid_request, f"quotas apply to {' and '.join(_FIELDS)}, not to {entity_type}")
    return _FIELDS[entity_type]


def _read_entity(parts: Any) -> Entity:
    named = {_field(each.entity_type): DEFAULT if each.entity_name is None else each.entity_name for each in parts}
    if not named or len(named) < len(parts) or "" in named.values():
        raise LogError(ErrorCode.invalid_request, "name a user, a client-id, or one of each")
    return Entity(**named)


def _read_rates(ops: Any) -> dict[str, float | None]:
    for each in ops:
        if each.key not in KEYS:
            raise LogError(ErrorCode.invalid_request, f"unknown quota {each.key}; known are {', '.join(KEYS)}")
        if not each.remove and not 1 <= each.value < math.inf:
            raise LogError(ErrorCode.invalid_request, f"{each.key} must be at least 1 byte per second")
    return {each.key: None if each.remove else float(each.value) for each in ops}


def _fits(entity: Entity, wanted: dict[str, Any], strict: bool) -> bool:
    named = {field for field, name in entity._asdict().items() if name is not None}
    if strict and named != set(wanted):
        return False
    return all(_fits_one(getattr(entity, field), asked) for field, asked in wanted.items())


def _fits_one(name: str | None, asked: Any) -> bool:
    match asked.match_type:
        case 0:
            return name is not None and name == asked.match
        case 1:
            return name == DEFAULT
        case 2:
            return name is not None
        case other:
            raise LogError(ErrorCode.invalid_request, f"unknown kind of match {other}")


def _entity_data(entity: Entity) -> list[Fields]:
    names = {kind: getattr(entity, field) for kind, field in _FIELDS.items()}
    return [
        {"entity_type": kind, "entity_name": None if name == DEFAULT else name}
        for kind, name in names.items()
        if name is not None
    ]


def _values(rates: dict[str, float]) -> list[Fields]:
    return [{"key": key, "value": float(rate)} for key, rate in rates.items()]


HANDLERS = {"describe_client_quotas": describe_client_quotas, "alter_client_quotas": alter_client_quotas}
