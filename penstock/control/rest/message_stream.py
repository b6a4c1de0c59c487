"""New records of a topic, by SSE."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated

import anyio
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from penstock.control.api.topics import TailQuery
from penstock.control.rest.documentation import operation
from penstock.control.rest.events import KEEP_ALIVE_SECONDS
from penstock.control.rest.problems import problem_of
from penstock.control.rest.topics import TheBroker, TopicPath
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.control.broker.tail import Tail

POLL_SECONDS = 0.25
_STREAM = {"text/event-stream": {"schema": {"type": "string"}}}
_MESSAGES = {"description": "An endless stream of messages", "content": _STREAM}
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

router = APIRouter(tags=["log"])


@router.get(
    "/topics/{topic}/messages/stream",
    response_class=Response,
    **operation("stream_messages", "viewer", 404, 409, responses={200: _MESSAGES}),
)
async def stream_messages(topic: TopicPath, query: Annotated[TailQuery, Query()], broker: TheBroker) -> Response:
    """Send records as they are written, by SSE: `message` events, and `missed` with the number beyond the rate."""
    tail = await run_in_threadpool(broker.tail, topic, query)
    return StreamingResponse(_sent(tail), media_type="text/event-stream", headers=_HEADERS)


async def _sent(tail: Tail, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[str]:
    try:
        # What is written from now on is sent: a client that waits for this line misses nothing.
        yield ": subscribed\n\n"
        last = clock()
        while True:
            try:
                found, missed = await run_in_threadpool(tail.poll, POLL_SECONDS)
            except PenstockError as error:
                yield f"event: problem\ndata: {problem_of(error).model_dump_json()}\n\n"
                return
            for message in found:
                yield f"id: {message.partition}-{message.offset}\ndata: {message.model_dump_json(by_alias=True)}\n\n"
            if missed:
                yield f'event: missed\ndata: {{"missed": {missed}}}\n\n'
            if found or missed:
                last = clock()
            elif clock() - last > KEEP_ALIVE_SECONDS:
                last = clock()
                yield ": still here\n\n"
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(tail.close)
