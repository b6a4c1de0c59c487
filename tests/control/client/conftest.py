from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.client.busy_manager import BusyManager, busy_server


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No penstock.toml and no variable of the developer's."""
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_SERVER", "PENSTOCK_TOKEN", "PENSTOCK_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def served() -> Iterator[tuple[BusyManager, str]]:
    with busy_server() as served:
        yield served


@pytest.fixture
def manager(served: tuple[BusyManager, str]) -> BusyManager:
    return served[0]
