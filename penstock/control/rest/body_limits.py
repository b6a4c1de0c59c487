"""Limits on the size of bodies: refused by their length, or as soon as more arrives than is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.control.rest.problems import ProblemResponse, plain_problem


@dataclass(frozen=True)
class BodySizes:
    """Most bytes of a body: with uploaded files, and without."""

    upload: int = 32 * 1024 * 1024
    other: int = 4 * 1024 * 1024


BODY_SIZES = BodySizes()


class BodyLimits:
    """Refuses bodies above the limits; at most the limit of one is ever read."""

    def __init__(self, app: ASGIApp, sizes: BodySizes) -> None:
        self.app, self.sizes = app, sizes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a body that raises beyond the limit."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self._limit(headers)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limit:
            await ProblemResponse(plain_problem(413, *_texts(limit)))(scope, receive, send)
            return
        await self.app(scope, _limited(receive, limit), send)

    def _limit(self, headers: Headers) -> int:
        is_upload = headers.get("content-type", "").lower().startswith("multipart/form-data")
        return self.sizes.upload if is_upload else self.sizes.other


def _limited(receive: Receive, limit: int) -> Receive:
    read = 0

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit:
            raise HTTPException(413, _texts(limit)[0])
        return message

    return limited


def _texts(limit: int) -> tuple[str, str]:
    return f"the body has more than {limit:,} bytes", "send code only; data belongs into a source of the pipeline"
