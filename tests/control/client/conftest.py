from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.client.memory_manager import MemoryManager, memory_server


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No penstock.toml and no variable of the developer's."""
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_SERVER", "PENSTOCK_TOKEN", "PENSTOCK_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def served() -> Iterator[tuple[MemoryManager, str]]:
    with memory_server() as served:
        yield served


@pytest.fixture
def manager(served: tuple[MemoryManager, str]) -> MemoryManager:
    return served[0]
