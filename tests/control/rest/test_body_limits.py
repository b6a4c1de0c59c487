"""Bodies above the limit are refused before they are read whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException

from penstock.control.rest.app import create_app
from penstock.control.rest.body_limits import BodyLimits, BodySizes
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving

SIZES = BodySizes(upload=300_000, other=2_000)


@pytest.fixture(scope="module")
def limited() -> Iterator[httpx.Client]:
    with (
        serving(create_app(MemoryManager(), sizes=SIZES)) as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        yield client


def test_an_upload_up_to_the_limit_is_accepted(limited: httpx.Client) -> None:
    assert limited.post("/api/v1/jobs", files={"file": ("a.py", b"#" * 290_000)}).status_code == 201


def test_an_upload_that_says_how_large_it_is_is_refused_at_once(limited: httpx.Client) -> None:
    response = limited.post("/api/v1/jobs", files={"file": ("b.py", b"#" * 400_000)})
    assert (response.status_code, response.headers["content-type"]) == (413, "application/problem+json")
    assert "300,000 bytes" in response.json()["detail"]


def test_an_upload_of_unknown_size_is_refused_when_it_exceeds_the_limit(limited: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="c.py"\r\n\r\n'
        yield from (b"#" * 10_000 for _ in range(200))

    headers = {"content-type": "multipart/form-data; boundary=x"}
    response = limited.post("/api/v1/jobs", content=endless(), headers=headers)
    assert (response.status_code, response.headers["content-type"]) == (413, "application/problem+json")


def test_no_more_than_the_limit_is_read() -> None:
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1_000
        return {"type": "http.request", "body": b"#" * 1_000, "more_body": True}

    async def reader(scope: Any, receive: Any, send: Any) -> None:
        while True:
            await receive()

    scope = {"type": "http", "headers": [(b"content-type", b"multipart/form-data; boundary=x")]}
    with pytest.raises(HTTPException):
        asyncio.run(BodyLimits(reader, SIZES)(scope, receive, receive))
    assert read <= SIZES.upload + 1_000


def test_other_bodies_have_a_smaller_limit(limited: httpx.Client) -> None:
    response = limited.post("/api/v1/jobs/a/stop", json={"savepoint": "x" * 3_000})
    assert response.status_code == 413
