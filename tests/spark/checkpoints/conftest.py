from __future__ import annotations

import pytest

from penstock.settings import Settings
from tests.spark.checkpoints.damaged_jobs import Made, stopped_jobs


@pytest.fixture(scope="session")
def stopped_job(shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A job that read its files in epochs of their own and was stopped; by the kind of its state, or "reminders"."""
    return stopped_jobs(shared_settings, tmp_path_factory)
