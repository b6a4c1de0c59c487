"""The autoscaler: every half minute it decides over the series of each job, and acts by a stored rescale command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.control.autoscaling.decisions import Decision, decide
from penstock.control.autoscaling.figures import Sample
from penstock.control.autoscaling.policies import autoscaling_policy
from penstock.control.autoscaling.state import ScalingState
from penstock.control.machine.states import JobState
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.series import Series
from penstock.control.supervisor.leader.term import Term
from penstock.errors import BadValue
from penstock.settings import cores

STATE, DRY_RUN = "state", "dry_run"
_RANGE_SECONDS = 1200.0
_METRICS = ("source_lag_rows", "rows_per_second", "processing_latency_seconds", "parallelism", "busy_ratio")
REQUESTED_BY = "autoscaler"
_logger = logging.getLogger(__name__)


async def autoscale(term: Term) -> None:
    """Decide for every running job that has a policy."""
    for job, machine in tuple(term.machines.items()):
        stored = term.jobs.get(job)
        if stored is not None and stored.autoscaling and machine.state is JobState.RUNNING and not machine.request:
            await asyncio.to_thread(_decide_for, term, stored)


def _decide_for(term: Term, job: StoredJob) -> None:
    options = dict(job.autoscaling or {})
    remembered, dry_run = options.pop(STATE, None), bool(options.pop(DRY_RUN, False))
    try:
        policy = autoscaling_policy(options)
    except BadValue as error:
        _logger.warning("job %s: %s", job.name, error)
        return
    now = term.clock()
    state = _state(remembered, job.parallelism or cores(), job.started_at)
    found = term.store.series.read(job.id, _METRICS, start=now - _RANGE_SECONDS, end=now, resolution=10)
    decision = decide(policy, samples_of(found, state.parallelism), state, now)
    _record(term, job, decision, dry_run=dry_run)


def _state(remembered: Any, parallelism: int, started_at: float | None) -> ScalingState:
    if not isinstance(remembered, dict):
        return ScalingState(parallelism)
    state = ScalingState.from_json(remembered)
    if state.parallelism == parallelism:
        return state
    # Somebody else has rescaled the job, or a rescale was rolled back: either began the present run.
    return state.changed(parallelism, started_at or state.changed_at or 0.0)


def samples_of(series: Sequence[Series], parallelism: int) -> list[Sample]:
    """Return the points of several series, joined by their times."""
    by_time: dict[float, dict[str, float]] = {}
    for one in series:
        for point in one.points if not one.node else ():
            by_time.setdefault(point.at, {})[one.metric] = point.mean
    return [
        Sample(
            at=at,
            parallelism=round(values.get("parallelism", parallelism)),
            lag=values.get("source_lag_rows"),
            rows=values.get("rows_per_second"),
            busy=values.get("busy_ratio"),
            latency=values.get("processing_latency_seconds"),
        )
        for at, values in sorted(by_time.items())
    ]


def _record(term: Term, job: StoredJob, decision: Decision, *, dry_run: bool) -> None:
    acts = decision.changes and not dry_run
    verb = "rescale" if acts else "would rescale" if decision.changes else "keep"
    text = f"{verb} to {decision.parallelism}: {decision.reason}"
    _logger.info("autoscaling %s (%s): %s %s", job.name, job.id, text, decision.figures)
    term.bus.publish_threadsafe(
        "autoscaling",
        job.id,
        parallelism=decision.parallelism,
        changes=decision.changes,
        dry_run=dry_run,
        reason=decision.reason,
        figures=decision.figures,
    )
    if not decision.changes:
        return
    with term.store.begin(term.token) as write:
        write.transitions.add(job.id, JobState.RUNNING, JobState.RUNNING, f"autoscaling: {text} {decision.figures}")
        if acts:
            kept = {**(job.autoscaling or {}), STATE: decision.state.to_json()}
            write.jobs.update(job.id, autoscaling=kept)
            write.commands.add(job.id, "rescale", {"parallelism": decision.parallelism}, REQUESTED_BY)
            term.jobs[job.id] = replace(job, autoscaling=kept)
