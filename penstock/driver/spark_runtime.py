"""Runs jobs on Spark in this process."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.driver.assignment import Assignment, with_secrets
from penstock.driver.restore import restore_once
from penstock.driver.runtime import Run
from penstock.driver.user_code import PATH, UserCode, has_neighbours
from penstock.pipeline import Pipeline
from penstock.settings import Settings
from penstock.spark.checkpoints.savepoints import create_savepoint
from penstock.spark.runs.runner import Runner
from penstock.spark.runs.start import start_run
from penstock.spark.session.object_stores import with_store
from penstock.spark.session.spark_session import end_jvm, has_jvm, jvm_has_ended, log_to, session, share_session
from penstock.storage.folders import folder

_SCHEDULER = "spark.scheduler.mode"
_POOL = "spark.scheduler.pool"
JVM_ENDED = 70


class SparkRuntime:
    """One session, and the jobs on it. Jobs are started one at a time: path and environment are the process's."""

    def __init__(self, log: Path) -> None:
        log_to(log)
        self._code = UserCode()
        self._starting = threading.Lock()

    def start(self, assignment: Assignment) -> Run:
        """Load the job's pipeline, restore its savepoint and start it.

        A driver whose JVM was killed ends: the jobs on it have failed, and only another driver can run them.
        """
        if jvm_has_ended():
            print("the JVM of this driver has ended; its jobs start in another driver", file=sys.stderr, flush=True)
            os._exit(JVM_ENDED)
        with self._starting:
            os.environ.update(assignment.environment)
            assignment = with_secrets(assignment, os.environ)
            settings = job_settings(assignment)
            pipeline = self._code.load(assignment)
            notice = restore_once(assignment, pipeline.name, folder(_savepoints(assignment, settings)))
            self._prepare_session(assignment, settings)
            run = _start(pipeline, assignment, settings)
        run.notice = "; ".join(part for part in (notice, run.notice) if part) or None
        return run

    def savepoint(self, assignment: Assignment, name: str) -> dict[str, Any]:
        """Create a savepoint of a job, which may be running."""
        target = folder(_savepoints(assignment, job_settings(with_secrets(assignment, os.environ))))
        made = create_savepoint(folder(assignment.checkpoint), target, name)
        epochs = {query: saved.epoch for query, saved in made.queries.items()}
        return {"path": str(target / name), "bytes": made.bytes, "files": made.files, "epochs": epochs}

    def ended(self, assignment: Assignment) -> None:
        """Forget the job's modules."""
        if assignment.pool is not None:
            self._code.forget(assignment)

    def close(self) -> None:
        """End the JVM."""
        end_jvm()

    def _prepare_session(self, assignment: Assignment, settings: Settings) -> None:
        """Give a Spark that runs already what a new one would take from this process when it starts."""
        running = has_jvm()
        if not running and assignment.pool is None:
            return
        context = session(with_store(settings, folder(assignment.checkpoint))).sparkContext
        if running:
            context.environment.update(assignment.environment)
            # Other variables would make Spark start another set of Python processes, which takes a second.
            if has_neighbours(assignment):
                context.environment[PATH] = os.environ[PATH]
        if assignment.pool is not None:
            share_session()
            # Queries inherit it from this thread.
            context.setLocalProperty(_POOL, assignment.job)


def job_settings(assignment: Assignment) -> Settings:
    """Return the settings of a job; the jobs of a pool take turns, task by task."""
    settings = Settings.load(**assignment.settings)
    if assignment.pool is None:
        return settings
    return replace(settings, spark={_SCHEDULER: "FAIR", **settings.spark})


def _start(pipeline: Pipeline, assignment: Assignment, settings: Settings) -> Runner:
    return start_run(
        pipeline.name,
        pipeline.graph,
        folder(assignment.checkpoint),
        settings,
        assignment.until,
        pipeline.pace,
        assignment.allow_drop,
        pipeline.overload,
        assignment.token,
    )


def _savepoints(assignment: Assignment, settings: Settings) -> str:
    return assignment.savepoints or settings.savepoints
