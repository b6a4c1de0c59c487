"""Bodies above the limit are refused before they are read whole."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from penstock.control.rest.app import create_app
from penstock.control.rest.body_limits import BodySizes
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
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="c.py"\r\n\r\n'
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield head
        for _ in range(2_000):
            sent += 10_000
            yield b"#" * 10_000

    headers = {"content-type": "multipart/form-data; boundary=x"}
    try:
        response = limited.post("/api/v1/jobs", content=endless(), headers=headers)
    except httpx.WriteError:  # the server has closed the connection
        return
    assert response.status_code == 413


def test_other_bodies_have_a_smaller_limit(limited: httpx.Client) -> None:
    response = limited.post("/api/v1/jobs/a/stop", json={"savepoint": "x" * 3_000})
    assert response.status_code == 413
