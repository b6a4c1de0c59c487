"""The SQL console: a query over topics and states, answered as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from penstock.control.api.queries import QueryRequest, QuerySource
from penstock.control.api.state import StateQuery
from penstock.control.rest.callers import TheManager
from penstock.control.rest.documentation import operation
from penstock.control.rest.manager import Manager
from penstock.control.rest.problems import problem_of
from penstock.control.rest.topics import TheBroker
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.control.broker.console import Answer

MEDIA_TYPE = "application/x-ndjson"
_MOST_ROWS_OF_JOBS = 1_000
_LINES = {
    "description": 'Lines of JSON: {"columns", "explain", "python", "warnings"}, then {"rows"}, each a chunk, '
    'and at last {"done", "rows", "scanned", "truncated", "ms"} or {"problem"}',
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
}

router = APIRouter(tags=["log"])


@router.post("/queries", response_class=Response, **operation("run_query", "viewer", 404, 409, responses={200: _LINES}))
def run_query(body: QueryRequest, broker: TheBroker, manager: TheManager) -> Response:
    """Run a SELECT once, over bounded rows of topics or of nodes of jobs; nothing is changed."""
    answer = broker.query(body, _tables(body, manager))
    # A mistake in the query is a problem, before the response has begun.
    first = next(answer)
    return StreamingResponse(_lines(first, answer), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


def _tables(body: QueryRequest, manager: Manager) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables that are no topics."""
    return {name: _rows(source, manager) for name, source in body.sources.items() if source.job is not None}


def _rows(source: QuerySource, manager: Manager) -> list[dict[str, Any]]:
    """Return rows of a job: of the state of a node, or what a source, a sink or another node has."""
    job, limit = str(source.job), min(source.limit, _MOST_ROWS_OF_JOBS)
    nodes = {each.name: each for each in manager.nodes(job, None).items} if source.node is not None else {}
    about = nodes.get(source.node or "")
    if source.node is not None and about is not None and not about.stateful:
        return manager.sample(job, source.node, limit).rows
    return manager.state(job, StateQuery(node=source.node, limit=limit)).rows


async def _lines(first: dict[str, Any], answer: Answer) -> AsyncIterator[str]:
    try:
        line: dict[str, Any] | None = first
        while line is not None:
            yield f"{json.dumps(line)}\n"
            is_last = line.get("done") or "problem" in line
            line = None if is_last else await _next(answer)
    finally:
        # A client that has left needs no answer: the thread that waits for a line sees the end of the process.
        answer.close()


async def _next(answer: Answer) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        try:
            return next(answer)
        except PenstockError as error:
            return {"problem": json.loads(problem_of(error).model_dump_json())}

    return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
