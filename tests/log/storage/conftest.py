"""Folders for tests that sync a lot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.storage.logs import quick_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder for one test."""
    with quick_folder() as folder:
        yield Path(folder)
