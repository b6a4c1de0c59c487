"""Stored jobs as the REST API returns them."""

from __future__ import annotations

import json

import pytest

from penstock.control.store.repositories.jobs import Job
from penstock.control.supervisor.requests.job_views import job_view


@pytest.mark.parametrize(("progress", "epoch"), [(None, None), ({"epoch": -1}, None), ({"epoch": 0}, 0)])
def test_a_job_without_a_committed_epoch_has_none(progress: dict[str, int] | None, epoch: int | None) -> None:
    shown = job_view(Job(id="j1", name="prices", state="RUNNING", run="j1-1", progress=progress))
    assert json.loads(shown.model_dump_json())["epoch"] == epoch
