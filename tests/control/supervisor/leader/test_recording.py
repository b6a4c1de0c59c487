"""What is stored of a job's progress."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.control.store.repositories.jobs import Job
from penstock.control.supervisor.leader.recording import Recording


@pytest.mark.parametrize(
    ("before", "heard", "shown"),
    [(None, -1, -1), ({"epoch": 7}, -1, 7), ({"epoch": 7}, 8, 8), ({"epoch": 7}, 3, 3), ({}, -1, -1)],
)
def test_the_newest_epoch_stays_until_the_next_run_commits_one(
    before: dict[str, Any] | None, heard: int, shown: int
) -> None:
    recording = Recording()
    recording.take_progress(Job(id="j1", name="prices", progress=before), {"epoch": heard, "lag": 3})
    assert recording._progress == {"j1": {"epoch": shown, "lag": 3}}
