from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control.client.busy_manager import BusyManager, busy_server


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BusyManager, str]]:
    monkeypatch.setattr("penstock.control.client.client.POLL_SECONDS", 0)
    with busy_server() as served:
        yield served


@pytest.fixture
def manager(served: tuple[BusyManager, str]) -> BusyManager:
    return served[0]


@pytest.fixture
def on_manager(
    penstock: Callable[..., Any], served: tuple[BusyManager, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """The command line with the address of the job manager."""
    monkeypatch.setenv("PENSTOCK_SERVER", served[1])
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    return penstock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vwap.py"
    path.write_text("import penstock as ps\n")
    return path
