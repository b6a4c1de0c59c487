"""SaslHandshake, SaslAuthenticate, and the bare frames that old clients send instead of the latter."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from penstock.log.errors import ErrorCode, LogError
from penstock.log.security.authentication import Authentication

if TYPE_CHECKING:
    from penstock.log.calls import Call

Fields = dict[str, Any]

FAILED_LOGIN_DELAY = 0.1  # seconds, as Kafka's: guessing passwords must not be fast
_log = logging.getLogger(__name__)


async def sasl_handshake(call: Call, request: Any) -> Fields:
    """Choose the mechanism of a login."""
    authentication = _authentication(call)
    try:
        authentication.handshake(request.mechanism, raw=call.version == 0)
    except LogError as error:
        return {"error_code": error.code, "mechanisms": list(authentication.mechanisms)}
    return {"error_code": ErrorCode.none, "mechanisms": list(authentication.mechanisms)}


async def sasl_authenticate(call: Call, request: Any) -> Fields:
    """Take one step of a login."""
    try:
        answer = await login_step(call, request.auth_bytes)
    except LogError as error:
        return {"error_code": error.code, "error_message": error.message, "auth_bytes": b""}
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": answer}


async def login_step(call: Call, message: bytes) -> bytes:
    """Take one step of a login; what a connection does with a bare frame while `authentication.raw` holds."""
    authentication = _authentication(call)
    try:
        # Checking a password is slow on purpose; a thread keeps the event loop free.
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
        raise LogError(ErrorCode.illegal_sasl_state, "logins are not asked for here; connect without SASL")
    return found


HANDLERS = {"sasl_handshake": sasl_handshake, "sasl_authenticate": sasl_authenticate}
