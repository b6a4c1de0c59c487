"""SaslHandshake, SaslAuthenticate (or raw SASL frames of old clients), and the requests for SCRAM credentials."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.log.errors import ErrorCode, LogError
from penstock.log.protocol.messages import Fields
from penstock.log.security.acls import CLUSTER_NAME
from penstock.log.security.authentication import Authentication
from penstock.log.security.users import MAX_ITERATIONS, MIN_ITERATIONS, Credential, User, Users

if TYPE_CHECKING:
    from penstock.log.request_context import Call

FAILED_LOGIN_DELAY = 0.1  # seconds, as Kafka's: guessing passwords must not be fast
_log = logging.getLogger(__name__)
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in _MECHANISMS.items()}


async def sasl_handshake(call: Call, request: Any) -> Fields:
    """Choose the SASL mechanism."""
    authentication = _authentication(call)
    try:
        authentication.handshake(request.mechanism, raw=call.version == 0)
    except LogError as error:
        return {"error_code": error.code, "mechanisms": list(authentication.mechanisms)}
    return {"error_code": ErrorCode.none, "mechanisms": list(authentication.mechanisms)}


async def sasl_authenticate(call: Call, request: Any) -> Fields:
    """Process one SASL message."""
    try:
        answer = await login_step(call, request.auth_bytes)
    except LogError as error:
        return {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": answer}


async def login_step(call: Call, message: bytes) -> bytes:
    """Process one SASL message; also used for raw frames, while `authentication.raw`."""
    authentication = _authentication(call)
    try:
        # Hashing a password is slow on purpose, so it runs in a thread.
        answer = await asyncio.to_thread(authentication.step, message)
    except LogError as error:
        _log.warning("%s: %s", call.host, error.message)
        call.broker.metrics.login_failed()
        await asyncio.sleep(FAILED_LOGIN_DELAY)
        raise
    if authentication.ready and call.broker.security.access:
        call.broker.security.access.refresh()
    return answer


def _authentication(call: Call) -> Authentication:
    found: Authentication | None = call.connection.authentication
    if found is None:
        raise LogError(ErrorCode.illegal_sasl_state, "authentication is disabled in this log; connect without SASL")
    return found


async def describe_user_scram_credentials(call: Call, request: Any) -> Fields:
    """List users with their mechanisms and iterations, without their keys."""
    users = _users(call, "DESCRIBE")
    names = Counter(each.name for each in request.users or ()) or Counter(user.name for user in users)
    return {"error_code": ErrorCode.none, "results": [_described(users, *named) for named in names.items()]}


async def alter_user_scram_credentials(call: Call, request: Any) -> Fields:
    """Set and remove credentials; atomic for each user."""
    names = list(dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions)))
    try:
        users = _users(call, "ALTER")
        outcomes = {name: _altered(users, name, request) for name in names}
        _store(users, [user for user in outcomes.values() if isinstance(user, User)])
        if call.broker.security.access:
            call.broker.security.access.refresh()
    except LogError as error:
        return {"results": [_result(name, error) for name in names]}
    return {"results": [_result(name, user) for name, user in outcomes.items()]}


def _users(call: Call, operation: str) -> Users:
    if not call.allowed(operation, "CLUSTER", CLUSTER_NAME):
        raise LogError(ErrorCode.cluster_authorization_failed, f"{operation} on the cluster is not allowed")
    users: Users = call.broker.security.users
    return users


def _described(users: Users, name: str, times: int) -> Fields:
    user = users.get(name)
    if times > 1:
        return _result(name, LogError(ErrorCode.duplicate_resource, f"user {name} appears {times} times"))
    if user is None or not user.credentials:
        return _result(name, LogError(ErrorCode.resource_not_found, f"there is no user {name}"))
    infos = [{"mechanism": _NUMBERS[c.mechanism], "iterations": c.iterations} for c in user.credentials.values()]
    return {**_result(name, user), "credential_infos": infos}


def _altered(users: Users, name: str, request: Any) -> User | LogError:
    deletions = [each for each in request.deletions if each.name == name]
    upsertions = [each for each in request.upsertions if each.name == name]
    user = users.get(name) or User(name)
    try:
        _check(user, deletions, upsertions)
    except LogError as error:
        return error
    credentials = dict(user.credentials)
    for each in deletions:
        del credentials[_MECHANISMS[each.mechanism]]
    credentials |= {_MECHANISMS[each.mechanism]: _credential(each) for each in upsertions}
    return replace(user, credentials=credentials)


def _check(user: User, deletions: list[Any], upsertions: list[Any]) -> None:
    mechanisms = [each.mechanism for each in (*deletions, *upsertions)]
    if not user.name:
        raise LogError(ErrorCode.unacceptable_credential, "a user needs a name")
    if unknown := set(mechanisms) - set(_MECHANISMS):
        raise LogError(ErrorCode.unsupported_sasl_mechanism, f"unknown SCRAM mechanism {min(unknown)}")
    if len(set(mechanisms)) < len(mechanisms):
        raise LogError(ErrorCode.duplicate_resource, f"a credential of user {user.name} is altered twice")
    if any(not MIN_ITERATIONS <= each.iterations <= MAX_ITERATIONS for each in upsertions):
        raise LogError(ErrorCode.unacceptable_credential, f"iterations: {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    if any(not each.salt or not each.salted_password for each in upsertions):
        raise LogError(ErrorCode.unacceptable_credential, "salt and salted password must not be empty")
    if any(_MECHANISMS[each.mechanism] not in user.credentials for each in deletions):
        raise LogError(ErrorCode.resource_not_found, f"user {user.name} has no such credential")


def _credential(given: Any) -> Credential:
    mechanism = _MECHANISMS[given.mechanism]
    return Credential.of_salted(mechanism, given.salted_password, given.salt, given.iterations)


def _store(users: Users, altered: Iterable[User]) -> None:
    kept = [user for user in altered if user.credentials]
    gone = [user.name for user in altered if not user.credentials]
    try:
        if kept or gone:
            users.change(kept, gone)
    except PenstockError as error:
        raise LogError(ErrorCode.kafka_storage_error, error.message) from error


def _result(name: str, outcome: User | LogError) -> Fields:
    if isinstance(outcome, LogError):
        return {"user": name, "error_code": outcome.code, "error_message": outcome.message, "credential_infos": []}
    return {"user": name, "error_code": ErrorCode.none, "error_message": None}


HANDLERS = {
    "sasl_handshake": sasl_handshake,
    "sasl_authenticate": sasl_authenticate,
    "describe_user_scram_credentials": describe_user_scram_credentials,
    "alter_user_scram_credentials": alter_user_scram_credentials,
}
