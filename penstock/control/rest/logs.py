"""The log of a job's driver, as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.jobs import JobPath
from penstock.masking import LineMask

router = APIRouter(tags=["history"])


@router.get("/jobs/{job}/logs", response_class=PlainTextResponse, **operation("get_logs", "viewer", 404))
async def get_logs(
    job: JobPath,
    manager: TheManager,
    tail: Annotated[int, Query(ge=0, le=100_000, description="number of lines from the end")] = 100,
    follow: Annotated[bool, Query(description="send new lines as they are written")] = False,
) -> Response:
    """Return the last lines of a job's log, or follow it."""
    if follow:
        await run_in_threadpool(manager.get_job, job)  # an unknown one is a problem, before the response starts
        return StreamingResponse(_lines(manager.follow_logs(job, tail)), media_type=PlainTextResponse.media_type)
    lines = await run_in_threadpool(manager.logs, job, tail)
    return PlainTextResponse(await run_in_threadpool(_masked, lines))


def _masked(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in map(LineMask(), lines))


async def _lines(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    mask = LineMask()
    async for line in lines:
        # Long lines take a while, and other requests would wait for them.
        yield f"{await run_in_threadpool(mask, line)}\n"
