"""The audit log: every request that can change something, with who sent it and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.control.api.access import AuditEntry
from penstock.control.rest.manager import Caller, Manager

_log = logging.getLogger(__name__)
_READS = ("GET", "HEAD", "OPTIONS")


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


class Audit:
    """Records requests of known callers after they were answered; those of unknown ones never reach it."""

    def __init__(self, app: ASGIApp, manager: Manager, clock: Callable[[], datetime] = now) -> None:
        self.app, self.manager, self.clock = app, manager, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record it if it can change something."""
        caller: Caller | None = scope.get("penstock.caller")
        if scope["type"] != "http" or scope["method"] in _READS or caller is None:
            await self.app(scope, receive, send)
            return
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            await self._record(scope, caller, status)

    async def _record(self, scope: Scope, caller: Caller, status: int) -> None:
        route = scope.get("route")
        entry = AuditEntry(
            at=self.clock(),
            who=caller.name,
            role=caller.role,
            action=getattr(route, "operation_id", None) or scope["method"],
            target=scope["path"][:500],
            address=caller.address,
            outcome=str(status),
        )
        _log.info("audit: %s %s %s: %d", entry.who, entry.action, entry.target, status)
        try:
            await run_in_threadpool(self.manager.record, entry)
        except Exception:  # the request was carried out; its answer must not be lost with the entry
            _log.exception("the audit log cannot be written")
