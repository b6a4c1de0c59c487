"""Stored jobs as the REST API returns them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.control.store.repositories.epochs import Epoch
from penstock.control.store.repositories.jobs import Job
from penstock.control.supervisor.requests.job_views import JobViews, epoch_view, job_view


@pytest.mark.parametrize(("progress", "epoch"), [(None, None), ({"epoch": -1}, None), ({"epoch": 0}, 0)])
def test_a_job_without_a_committed_epoch_has_none(progress: dict[str, int] | None, epoch: int | None) -> None:
    shown = job_view(Job(id="j1", name="prices", state="RUNNING", run="j1-1", progress=progress))
    assert json.loads(shown.model_dump_json())["epoch"] == epoch


def test_a_view_is_kept_until_its_job_changes_and_never_too_many() -> None:
    views = JobViews(most=2)
    job = Job(id="j1", name="prices", updated_at=1.0)
    assert views(job) is views(replace(job))
    assert views(replace(job, state="RUNNING", updated_at=2.0)).state == "RUNNING"
    for number in range(5):
        views(Job(id=f"other{number}", name="x", updated_at=1.0))
    assert len(views._views) <= 2


def test_the_end_of_input_is_no_time_but_a_field() -> None:
    end = "9998-12-31T23:59:55+00:00"
    shown = job_view(Job(id="j1", name="prices", state="FINISHED", progress={"watermark": end}))
    assert (shown.watermark, shown.ended_input) == (None, True)
    running = job_view(
        Job(id="j1", name="prices", state="RUNNING", progress={"watermark": "2026-11-17T10:00:00+00:00"})
    )
    assert (str(running.watermark), running.ended_input) == ("2026-11-17 10:00:00+00:00", False)
    epoch = epoch_view(Epoch(job="j1", number=1, at=1.0, watermark=253370764795.0))
    assert (epoch.watermark, epoch.ended_input) == (None, True)
