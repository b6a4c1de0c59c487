"""Submissions and updates: the source is stored, its plan is checked, and then the job or version is created."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from penstock.control.api.commands import Command, Kind
from penstock.control.api.jobs import Submission, Update
from penstock.control.autoscaling.policies import autoscaling_policy
from penstock.control.machine.restart_policies import restart_policy
from penstock.control.machine.rules import possible_commands
from penstock.control.rest.manager import Caller, IdempotencyKey, Source
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.jobs import new_id
from penstock.control.store.repositories.versions import Version
from penstock.control.store.store import Store
from penstock.control.supervisor.leader.assignments import allowed_label, job_settings, memory_bytes
from penstock.control.supervisor.leader.transitions import machine_job
from penstock.control.supervisor.options import Options
from penstock.control.supervisor.pending_submissions import Pending, pending, remove_version
from penstock.control.supervisor.requests.job_views import command_view
from penstock.control.supervisor.requests.plan_checks import CheckedPlan, check_plan
from penstock.control.supervisor.requests.sources import StoredSource, store_source
from penstock.errors import CheckpointMismatch, RequestRefused, StoreUnavailable


class Submissions:
    """Creates jobs, versions and commands. Blocks: called in threads of the REST server."""

    def __init__(self, store: Store, options: Options) -> None:
        self._store, self._options = store, options

    def submit(
        self, submission: Submission, source: Source, caller: Caller, key: IdempotencyKey | None
    ) -> tuple[StoredJob, bool]:
        """Return the job, and whether this request has created it."""
        known = self._known(key)
        if known is not None:
            return known, False
        policies = _policies(submission)
        job = new_id()
        with self._pending(job) as mark, self._stored(mark, job, 1, source, submission.entry) as stored:
            checked = self._check(job, stored, submission.settings, submission.arguments, submission.memory)
            return self._create(job, submission, policies, stored, checked, caller, key)

    def _pending(self, job: str) -> AbstractContextManager[Pending]:
        self._options.data.check_space()
        return pending(self._options.data, job)

    @contextmanager
    def _stored(
        self, mark: Pending, job: str, number: int, source: Source, entry: str | None
    ) -> Iterator[StoredSource]:
        """Store a source; it is removed again if it is refused."""
        mark.version(number)
        try:
            yield store_source(self._options.data, job, number, source.filename, source.content, entry)
        except StoreUnavailable:
            raise  # the version may be stored: what has a mark is looked at again once the store is back
        except BaseException:
            remove_version(self._options.data, job, number)
            raise

    def _create(
        self,
        job: str,
        submission: Submission,
        policies: dict[str, Any],
        stored: StoredSource,
        checked: CheckedPlan,
        caller: Caller,
        key: IdempotencyKey | None,
    ) -> tuple[StoredJob, bool]:
        row = StoredJob(
            id=job,
            name=submission.name or checked.pipeline,
            entry=stored.entry,
            until=submission.until,
            parallelism=submission.parallelism,
            cores=submission.cores,
            memory=submission.memory,
            pool=submission.pool,
            settings=submission.settings,
            arguments=submission.arguments,
            checkpoint=self._options.data.checkpoint(job),
            created_by=caller.name,
            **policies,
        )
        with self._store.begin() as write:
            claimed = write.idempotency.claim(key.key, key.digest, job) if key is not None else None
            if claimed is None:
                created = write.jobs.create(row)
                write.versions.add(self._version(job, 1, stored, checked, row.settings, row.arguments, caller))
                return created, True
        remove_version(self._options.data, job, 1)
        found = self._known(key)
        assert found is not None
        return found, False

    def check(self, submission: Submission, source: Source) -> CheckedPlan:
        """Return the plan of a submission, and store nothing."""
        job = new_id()
        with self._pending(job) as mark, self._stored(mark, job, 1, source, submission.entry) as stored:
            checked = self._check(job, stored, submission.settings, submission.arguments, submission.memory)
            remove_version(self._options.data, job, 1)
            return checked

    def _known(self, key: IdempotencyKey | None) -> StoredJob | None:
        """Return the job that an earlier request with this key has created."""
        found = self._store.idempotency.find(key.key) if key is not None else None
        if key is None or found is None:
            return None
        if found.digest != key.digest:
            message = "this idempotency key was used for another request"
            raise RequestRefused(message, hint="send a new key with a new request")
        return self._store.jobs.get(found.job)

    def update(self, job: StoredJob, update: Update, source: Source, caller: Caller) -> Command:
        """Store a new version, and the command to update to it."""
        self._refuse_impossible(job, "update")
        settings = job.settings if update.settings is None else update.settings
        arguments = job.arguments if update.arguments is None else update.arguments
        with self._pending(job.id) as mark:
            number = self._store.versions.next_number(job.id)
            with self._stored(mark, job.id, number, source, update.entry) as stored:
                checked = self._check(job.id, stored, settings, arguments, job.memory)
                _refuse_lost_state(checked, update.allow_drop)
                version = self._version(job.id, number, stored, checked, settings, arguments, caller)
                return self._request_update(job, version, checked, caller)

    def _request_update(self, job: StoredJob, version: Version, checked: CheckedPlan, caller: Caller) -> Command:
        with self._store.begin() as write:
            write.versions.add(version)
            if checked.lost:
                labels = {**job.labels, allowed_label(version.number): " ".join(checked.lost)}
                write.jobs.update(job.id, labels=labels)
            return command_view(write.commands.add(job.id, "update", {"version": version.number}, caller.name))

    def request(self, job: StoredJob, kind: Kind, arguments: Mapping[str, Any], caller: Caller) -> Command:
        """Store a command; one that the job's state does not allow is refused."""
        given = {name: value for name, value in arguments.items() if value is not None and value is not False}
        for name in ("savepoint", "name"):
            if given.get(name) is True or (kind == "savepoint" and name == "name" and name not in given):
                given[name] = f"{job.id}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        with self._store.begin() as write:
            self._refuse_impossible(write.jobs.get(job.id), kind)
            return command_view(write.commands.add(job.id, kind, given, caller.name))

    def _refuse_impossible(self, job: StoredJob, kind: str) -> None:
        machine = machine_job(job)
        possible = possible_commands(machine)
        if kind not in possible:
            message = f"cannot {kind} job {job.name!r}: it is {machine.state}"
            raise RequestRefused(message, hint=f"possible now: {', '.join(possible) or 'nothing'}")

    def _check(
        self,
        job: str,
        stored: StoredSource,
        settings: Mapping[str, Any],
        arguments: Mapping[str, Any],
        memory: str | None,
    ) -> CheckedPlan:
        assignment = {
            "job": job,
            "target": str(stored.target),
            "entry": stored.name,
            "arguments": dict(arguments),
            "settings": job_settings(self._options.settings, settings, memory, None),
            "checkpoint": self._options.data.checkpoint(job),
        }
        return check_plan(assignment, self._options.check_seconds)

    def _version(
        self,
        job: str,
        number: int,
        stored: StoredSource,
        checked: CheckedPlan,
        settings: dict[str, Any],
        arguments: dict[str, Any],
        caller: Caller,
    ) -> Version:
        return Version(
            job=job,
            number=number,
            entry=stored.entry,
            digest=stored.digest,
            plan=checked.plan,
            settings=settings,
            arguments=arguments,
            created_by=caller.name,
        )


def _refuse_lost_state(checked: CheckedPlan, allowed: bool) -> None:
    if checked.lost and not allowed:
        message = f"the new version loses the state of: {', '.join(checked.lost)}"
        raise CheckpointMismatch(message, hint="keep these nodes as they are, or allow it: allow_drop=true")


def _policies(submission: Submission) -> dict[str, Any]:
    """Read what a user wrote of policies and memory, so that a mistake is known at once."""
    if submission.memory is not None:
        memory_bytes(submission.memory)
    restart = restart_policy(submission.restart_policy).to_json() if submission.restart_policy else None
    return {"policy": restart, "autoscaling": _scaling(submission.autoscaling) if submission.autoscaling else None}


def _scaling(policy: str | Mapping[str, Any]) -> dict[str, Any]:
    """Read an autoscaling policy; beside it, `dry_run` asks for decisions that are recorded and not carried out."""
    if isinstance(policy, str):
        return autoscaling_policy(policy).to_json()
    options = dict(policy)
    dry_run = options.pop("dry_run", False) is True
    return {**autoscaling_policy(options).to_json(), **({"dry_run": True} if dry_run else {})}
