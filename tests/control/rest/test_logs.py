"""Lines of a log are masked in a thread: a long one would hold up every other request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from starlette.responses import Response, StreamingResponse

from penstock.control.rest import logs
from penstock.masking import LineMask


class Manager:
    """The log of one job."""

    def get_job(self, job: str) -> None:
        """Every job exists."""

    def logs(self, job: str, tail: int) -> list[str]:
        return ["password=abc", "b"]

    async def follow_logs(self, job: str, tail: int) -> AsyncIterator[str]:
        for line in self.logs(job, tail):
            yield line


async def text_of(response: Response) -> str:
    if isinstance(response, StreamingResponse):
        return "".join([str(piece) async for piece in response.body_iterator])
    return bytes(response.body).decode()


@pytest.mark.parametrize("follow", [False, True])
def test_lines_of_a_log_are_masked_outside_of_the_event_loop(follow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    class Noted(LineMask):
        def __call__(self, line: str) -> str:
            used.append(threading.get_ident())
            return super().__call__(line)

    async def asked() -> str:
        return await text_of(await logs.get_logs("j", Manager(), 100, follow))  # type: ignore[arg-type]

    monkeypatch.setattr(logs, "LineMask", Noted)
    assert asyncio.run(asked()) == "password=***\nb\n"
    assert len(used) == 2
    assert threading.get_ident() not in used
