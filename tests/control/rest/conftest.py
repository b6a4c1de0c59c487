from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from penstock.control.rest.app import create_app
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving

API = "/api/v1"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, list[MemoryManager]]]:
    """One server for a module; the manager behind it is exchanged for each test."""
    app = create_app(MemoryManager())
    current: list[MemoryManager] = [app.state.manager]

    async def exchanged(scope, receive, send):  # type: ignore[no-untyped-def]
        app.state.manager = current[0]
        await app(scope, receive, send)

    with serving(exchanged) as url:
        yield url, current


@pytest.fixture
def manager(served: tuple[str, list[MemoryManager]]) -> MemoryManager:
    served[1][0] = MemoryManager()
    return served[1][0]


@pytest.fixture
def api(served: tuple[str, list[MemoryManager]], manager: MemoryManager) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served[0] + API, timeout=20, trust_env=False) as client:
        yield client
