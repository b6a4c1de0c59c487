"""Events by WebSocket and by SSE."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, WebSocket
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from penstock.control.api.events import MISSED, SUBSCRIBED, Event, EventQuery
from penstock.control.api.fields import mask
from penstock.control.rest.audit import now
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.guard import PROTOCOL
from penstock.control.rest.manager import Manager, Subscription
from penstock.control.rest.problems import ProblemResponse, problem_of
from penstock.errors import PenstockError

KEEP_ALIVE_SECONDS = 15.0
_RESTARTING = 1012
_RECENT, _RECENT_LONG = 256, 8
_STREAM = {"text/event-stream": {"schema": {"type": "string"}}}
_EVENTS = {"description": "An endless stream of events", "content": _STREAM}

router = APIRouter(tags=["events"])


class EventTexts:
    """Events as JSON. Each is encoded once, however many clients get it."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Mapping[str, Any], str]] = {}
        self._long: dict[int, tuple[Mapping[str, Any], str]] = {}

    def text(self, event: Mapping[str, Any]) -> str:
        """Return an event as JSON, with secrets masked."""
        # The nodes of a job may be many: of such texts few are kept.
        texts, most = (self._long, _RECENT_LONG) if "nodes" in event else (self._texts, _RECENT)
        known = texts.get(int(event["seq"]))
        if known is not None and known[0] is event:
            return known[1]
        if len(texts) >= most:
            texts.pop(next(iter(texts)))
        text = Event.model_validate(mask(event)).model_dump_json()
        texts[int(event["seq"])] = (event, text)
        return text


async def event_texts(
    subscription: Subscription, texts: EventTexts, after: int, clock: Callable[[], datetime] = now
) -> AsyncIterator[tuple[int, str]]:
    """Yield events with their numbers: first that the subscription is there, and one for those that were missed."""
    yield after, Event(seq=after, at=clock(), kind=SUBSCRIBED).model_dump_json()
    missed = 0
    async for event in subscription:
        if subscription.missed > missed:
            lost, missed = subscription.missed - missed, subscription.missed
            notice = {"seq": int(event["seq"]) - 1, "at": event["at"], "kind": MISSED, "missed": lost}
            yield notice["seq"], Event.model_validate(notice).model_dump_json()
        yield int(event["seq"]), texts.text(event)


@router.websocket("/events")
async def watch_events(socket: WebSocket, query: Annotated[EventQuery, Query()], manager: TheManager) -> None:
    """Send events as JSON texts until the client leaves. What it sends is ignored."""
    try:
        subscription = await _subscribe(manager, query.job, query.after)
    except PenstockError as error:
        await socket.send_denial_response(ProblemResponse(problem_of(error)))
        return
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
    leaving = asyncio.create_task(_close_on_leaving(socket, subscription))
    try:
        async for _, text in event_texts(subscription, socket.app.state.event_texts, query.after or 0):
            await socket.send_text(text)
        with suppress(RuntimeError):  # the client has left
            await socket.close(_RESTARTING)
    except WebSocketDisconnect:
        pass
    finally:
        subscription.close()
        leaving.cancel()


@router.get(
    "/events/stream", response_class=Response, **operation("stream_events", "viewer", 404, responses={200: _EVENTS})
)
async def stream_events(
    request: Request,
    query: Annotated[EventQuery, Query()],
    manager: TheManager,
    last: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^\d{1,18}$")] = None,
) -> Response:
    """Send events by SSE; a browser that connects again gets those that it has missed, if they are recent."""
    after = int(last) if last else query.after
    subscription = await _subscribe(manager, query.job, after)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    sent = _sent(subscription, request.app.state.event_texts, after or 0)
    return StreamingResponse(sent, media_type="text/event-stream", headers=headers)


async def _subscribe(manager: Manager, job: str | None, after: int | None) -> Subscription:
    known = (await run_in_threadpool(manager.get_job, job)).id if job else None
    return manager.subscribe(known, after)


async def _close_on_leaving(socket: WebSocket, subscription: Subscription) -> None:
    with suppress(WebSocketDisconnect):
        while True:
            if (await socket.receive())["type"] == "websocket.disconnect":
                break
    subscription.close()


async def _sent(subscription: Subscription, texts: EventTexts, after: int) -> AsyncIterator[str]:
    try:
        async for found in _with_pauses(event_texts(subscription, texts, after)):
            yield f"id: {found[0]}\ndata: {found[1]}\n\n" if found else ": still here\n\n"
    finally:
        subscription.close()


async def _with_pauses(events: AsyncIterator[tuple[int, str]]) -> AsyncIterator[tuple[int, str] | None]:
    """Yield events, and None when none has come for a while: proxies close silent connections."""
    waiting: asyncio.Future[tuple[int, str]] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield None
                continue
            found, waiting = waiting, None
            try:
                yield found.result()
            except StopAsyncIteration:
                return
    finally:
        if waiting:
            waiting.cancel()
