"""The job manager as the REST routes see it: requests write to the store, reports read from it."""

from __future__ import annotations

import contextlib
import os
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import psutil

from penstock.control.api.access import AuditEntry, NewToken, Secret, Token, TokenRequest
from penstock.control.api.cluster import Check, Cluster, Driver, Readiness
from penstock.control.api.commands import Command, Kind
from penstock.control.api.differences import Difference
from penstock.control.api.history import Checkpoint, Epoch, JobException, Savepoint, Transition
from penstock.control.api.jobs import Job, JobFilter, Plan, Submission, Update, Version
from penstock.control.api.nodes import NodeList, PlanPreview
from penstock.control.api.pages import Page, Paging
from penstock.control.api.samples import Diverted, DivertedQuery, NodeSample, Replay, Replayed
from penstock.control.api.series import Series, SeriesQuery, Sparkline, SparklineQuery
from penstock.control.api.state import StateQuery, StateTable
from penstock.control.api.version import VERSION
from penstock.control.machine.states import LIVE, JobState
from penstock.control.rest.manager import Caller, IdempotencyKey, Source, Submitted
from penstock.control.security.roles import Role
from penstock.control.security.tokens import Access
from penstock.control.store.repositories.audit import AuditRecord
from penstock.control.store.repositories.jobs import Job as StoredJob
from penstock.control.store.repositories.leases import MANAGER
from penstock.control.store.store import Store
from penstock.control.supervisor.capacity import NOTHING
from penstock.control.supervisor.drivers.logs import LogOf, follow_lines, last_lines
from penstock.control.supervisor.drivers.registry import folder_of
from penstock.control.supervisor.event_bus import Subscription
from penstock.control.supervisor.leader.assignments import allowed_label, share
from penstock.control.supervisor.leader.leadership import Leadership
from penstock.control.supervisor.leader.recording import status
from penstock.control.supervisor.options import Options
from penstock.control.supervisor.requests import job_views as views
from penstock.control.supervisor.requests import node_views
from penstock.control.supervisor.requests.job_requests import JobRequests
from penstock.control.supervisor.requests.sources import entry_text
from penstock.control.supervisor.requests.state_lookups import look_up
from penstock.control.supervisor.requests.submissions import Submissions
from penstock.control.supervisor.requests.version_differences import difference
from penstock.errors import PenstockError, RequestRefused, UnknownJob, choices
from penstock.observe.page import Sample, render

_NAMES_IN_HINT = 200
_LOG_SECONDS = 1.0
_MOST_POINTS = 60


class JobManager:
    """Implements `penstock.control.rest.manager.Manager`. Stateless but for the leadership: all is in the store."""

    def __init__(self, store: Store, options: Options, leadership: Leadership, access: Access) -> None:
        self._store, self._options, self._leadership, self._access = store, options, leadership, access
        self._submissions = Submissions(store, options)
        self._requests = JobRequests(options)
        self._started = time.time()
        self._views = views.JobViews()

    # --- requests ----------------------------------------------------------------------------------

    def submit(self, submission: Submission, source: Source, caller: Caller, key: IdempotencyKey | None) -> Submitted:
        """Check the plan and store the job."""
        job, created = self._submissions.submit(submission, source, caller, key)
        self._leadership.wake()
        return Submitted(views.job_view(job), created)

    def preview(self, submission: Submission, source: Source) -> PlanPreview:
        """Check the plan as `submit` does, and store nothing."""
        return node_views.preview(self._submissions.check(submission, source))

    def request(self, job: str, kind: Kind, arguments: Mapping[str, Any], caller: Caller) -> Command:
        """Store a command."""
        command = self._submissions.request(self._find(job), kind, arguments, caller)
        self._leadership.wake()
        return command

    def update(self, job: str, update: Update, source: Source, caller: Caller) -> Command:
        """Check the plan of a new version, store it, and the command to update to it."""
        command = self._submissions.update(self._find(job), update, source, caller)
        self._leadership.wake()
        return command

    # --- reports -----------------------------------------------------------------------------------

    def list_jobs(self, filters: JobFilter) -> Page[Job]:
        """Return a page of jobs, the newest first."""
        found = self._store.jobs.page(
            states=filters.state, name=filters.name, cursor=filters.cursor, limit=filters.limit
        )
        return views.page(found, self._views)

    def get_job(self, job: str) -> Job:
        """Return a job."""
        return self._views(self._find(job))

    def plan(self, job: str, version: int | None) -> Plan:
        """Return the plan of a version, or of the present one."""
        found = self._find(job)
        stored = self._store.versions.get(found.id, version or found.version)
        return Plan(job=found.id, version=stored.number, plan=stored.plan or {})

    def nodes(self, job: str, version: int | None) -> NodeList:
        """Return the nodes of a version's plan."""
        found = self._find(job)
        stored = self._store.versions.get(found.id, version or found.version)
        figures = self._store.nodes.find(found.id) if stored.number == found.version else None
        return node_views.node_list(stored, found, figures)

    def versions(self, job: str, paging: Paging) -> Page[Version]:
        """Return the versions of a job, the newest first."""
        found = self._store.versions.page(self._find(job).id, paging.cursor, paging.limit)
        return views.page(found, views.version_view)

    def difference(self, job: str, version: int, to: int | None) -> Difference:
        """Return what differs between two versions."""
        found = self._find(job)
        before, after = (self._store.versions.get(found.id, number) for number in (version, to or found.version))
        return difference(before, after, found.labels.get(allowed_label(after.number), "").split())

    def version_source(self, job: str, version: int) -> str:
        """Return the entry file of a version."""
        found = self._find(job)
        stored = self._store.versions.get(found.id, version)
        return entry_text(self._options.data, found.id, stored.number, stored.entry)

    def epochs(self, job: str, paging: Paging) -> Page[Epoch]:
        """Return the epochs of a job, the newest first."""
        found = self._store.epochs.page(self._find(job).id, paging.cursor, paging.limit)
        return views.page(found, views.epoch_view)

    def checkpoints(self, job: str, paging: Paging) -> Page[Checkpoint]:
        """Return the epochs that a job can be restored from, the newest first."""
        stored = self._find(job)
        location = stored.checkpoint or self._options.data.checkpoint(stored.id)
        found = self._store.epochs.page(stored.id, paging.cursor, paging.limit)
        return views.page(found, lambda epoch: views.checkpoint_view(epoch, location))

    def savepoints(self, job: str, paging: Paging) -> Page[Savepoint]:
        """Return the savepoints of a job, the newest first."""
        found = self._store.savepoints.page(self._find(job).id, paging.cursor, paging.limit)
        return views.page(found, views.savepoint_view)

    def exceptions(self, job: str, paging: Paging) -> Page[JobException]:
        """Return the errors of a job, the newest first."""
        found = self._store.exceptions.page(self._find(job).id, paging.cursor, paging.limit)
        return views.page(found, views.exception_view)

    def transitions(self, job: str, paging: Paging) -> Page[Transition]:
        """Return the transitions of a job, the newest first."""
        found = self._store.transitions.page(self._find(job).id, paging.cursor, paging.limit)
        return views.page(found, views.transition_view)

    def commands(self, job: str, paging: Paging) -> Page[Command]:
        """Return the commands of a job, the newest first."""
        found = self._store.commands.page(self._find(job).id, paging.cursor, paging.limit)
        return views.page(found, views.command_view)

    def command(self, command: str) -> Command:
        """Return a command by its id."""
        return views.command_view(self._store.commands.get(command))

    def logs(self, job: str, tail: int) -> list[str]:
        """Return the last lines of a job's log."""
        log = self._log_of(self._find(job))
        return last_lines(log, tail) if log is not None else []

    def follow_logs(self, job: str, tail: int) -> AsyncIterator[str]:
        """Yield the last lines, then new ones, until the job is deleted or in a final state."""

        def is_over() -> bool:
            found = self._store.jobs.find(job) or self._store.jobs.named(job)
            return found is None or JobState(found.state).is_final

        return follow_lines(lambda: self._log_of(self._find(job)), is_over, tail)

    def _log_of(self, job: StoredJob) -> LogOf | None:
        runs = self._store.runs.page(job.id, limit=1).items
        label = job.id if job.pool is not None else None
        return LogOf(folder_of(self._options.data, runs[0].id, runs[0].socket), label) if runs else None

    def series(self, job: str, query: SeriesQuery) -> list[Series]:
        """Return metrics of a job."""
        found = self._store.series.read(
            self._find(job).id,
            query.name,
            start=query.start.timestamp() if query.start else None,
            end=query.end.timestamp() if query.end else None,
            resolution=query.resolution,
        )
        return views.series_views(found)

    def sparklines(self, query: SparklineQuery) -> list[Sparkline]:
        """Return one metric of all jobs that have it, over the last minutes."""
        start = time.time() - 60 * query.minutes
        found = self._store.series.latest(query.name, start=start, resolution=views.sparkline_resolution(query.minutes))
        return [Sparkline(job=job, points=points[-_MOST_POINTS:]) for job, points in found.items() if job]

    def state(self, job: str, query: StateQuery) -> StateTable:
        """Return rows of the state of a job."""
        stored = self._find(job)
        return look_up(self._options.data, stored.checkpoint or self._options.data.checkpoint(stored.id), query)

    def sample(self, job: str, node: str, limit: int) -> NodeSample:
        """Return some rows of a node; of one with state, rows of the state."""
        found = self._find(job)
        version = self._store.versions.get(found.id, found.version)
        nodes = {one.name: one for one in node_views.node_views(version.plan or {})}
        if node not in nodes:
            message = f"job {found.name!r} has no node {node!r}"
            raise UnknownJob(message, hint=choices("nodes", nodes, node))
        if nodes[node].stateful:
            table = self.state(found.id, StateQuery(node=node, limit=limit))
            return NodeSample(columns=table.columns, rows=table.rows, source="state", note=f"after epoch {table.epoch}")
        return NodeSample(**self._requests.ask(found, version, "sample", node=node, limit=limit))

    def diverted(self, job: str, query: DivertedQuery) -> Diverted:
        """Return the newest rejected or late rows."""
        found = self._find(job)
        version = self._store.versions.get(found.id, found.version)
        return Diverted(**self._requests.ask(found, version, "diverted", kind=query.kind, limit=query.limit))

    def replay(self, job: str, request: Replay) -> Replayed:
        """Send rejected rows back to their source."""
        found = self._find(job)
        if request.kind == "late":
            message = "late rows cannot be replayed: they would be late again"
            raise RequestRefused(
                message, hint="to count them, restore a savepoint with a larger delay, or run a new job"
            )
        version = self._store.versions.get(found.id, found.version)
        return Replayed(**self._requests.ask(found, version, "replay", limit=request.limit))

    def _find(self, job: str) -> StoredJob:
        found = self._store.jobs.find(job) or self._store.jobs.named(job)
        if found is None:
            names = [one.name for one in self._store.jobs.page(limit=_NAMES_IN_HINT).items]
            message = f"there is no job {job!r}"
            raise UnknownJob(message, hint=choices("jobs", names, job))
        return found

    # --- the manager itself ------------------------------------------------------------------------

    def subscribe(self, job: str | None, after: int | None) -> Subscription:
        """Subscribe to events."""
        return self._leadership.bus.subscribe(job, after)

    def cluster(self) -> Cluster:
        """Return the state of the manager, its drivers and resources."""
        lease = self._store.leases.find(MANAGER)
        held = lease is not None and lease.remaining > 0
        used = sum((share(job) for job in self._store.jobs.all(LIVE)), NOTHING)
        settings, capacity = self._options.settings, self._options.capacity
        return Cluster(
            version=VERSION,
            manager=self._options.holder,
            role="active" if self._leadership.is_active else "standby",
            active_manager=lease.holder if lease is not None and held else None,
            started_at=views.time_of(self._started),
            store=self._store.address,
            log=settings.get("log"),
            spark_master=settings.get("spark_master"),
            cores=capacity.cores,
            cores_used=used.cores,
            memory_bytes=capacity.memory,
            memory_used_bytes=used.memory,
            jobs=self._store.jobs.counts(),
            drivers=list(self._drivers()),
        )

    def _drivers(self) -> Iterator[Driver]:
        term = self._leadership.term
        for driver in term.drivers if term is not None else ():
            yield Driver(
                run=driver.name,
                pid=driver.process.pid,
                spare=driver.is_spare,
                pool=driver.group.pool,
                jobs=list(driver.runs),
                memory_bytes=driver.resident or None,
                connected=driver.is_connected,
            )

    def readiness(self) -> Readiness:
        """Return whether the manager can serve requests."""
        try:
            self._store.ping()
        except PenstockError as error:
            return Readiness(ready=False, checks=[Check(name="store", ok=False, detail=error.message)])
        return Readiness(ready=True, checks=[Check(name="store", ok=True)])

    def metrics_page(self) -> bytes:
        """Return the metrics in Prometheus's text format; those of the embedded log follow."""
        return render(self._samples()) + self._log_page()

    def _samples(self) -> Iterator[Sample]:
        now, term = time.time(), self._leadership.term
        yield Sample("manager_active", float(self._leadership.is_active))
        yield Sample("manager_memory_bytes", float(psutil.Process(os.getpid()).memory_info().rss))
        yield Sample("event_subscribers", float(len(self._leadership.bus)))
        spares = sum(driver.is_spare for driver in term.drivers) if term is not None else 0
        yield Sample("spare_drivers", float(spares))
        for job in self._store.jobs.all():
            yield from self._leadership.recording.measurements.page_samples(status(job), job.name, now)

    def _log_page(self) -> bytes:
        address = self._options.log_metrics() if self._options.log_metrics else ""
        if not address:
            return b""
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=_LOG_SECONDS) as page:
            content: bytes = page.read()
            return content
        return b""

    def tokens(self) -> list[Token]:
        """Return all tokens that are not revoked."""
        return [views.token_view(token) for token in self._store.tokens.all()]

    def create_token(self, request: TokenRequest, caller: Caller) -> NewToken:
        """Create a token."""
        expires = request.expires_at.timestamp() if request.expires_at else None
        made = self._access.create(request.name, Role(request.role), expires_at=expires, created_by=caller.name)
        return NewToken(**views.token_view(made.token).model_dump(), token=made.text)

    def revoke_token(self, token: str) -> None:
        """Revoke a token by its id."""
        if not self._access.revoke(token):
            message = f"there is no token {token!r}"
            raise UnknownJob(message, hint="penstock token list shows them")

    def secrets(self) -> list[Secret]:
        """Return all secrets in the store, without values."""
        return [views.secret_view(secret) for secret in self._store.secrets.all()]

    def set_secret(self, name: str, value: str, caller: Caller) -> Secret:
        """Set a secret, or change it."""
        return views.secret_view(self._store.secrets.put(name, value, caller.name))

    def delete_secret(self, name: str) -> None:
        """Delete a secret by its name."""
        if not self._store.secrets.delete(name):
            message = f"there is no secret {name!r} in the store"
            raise UnknownJob(message, hint="penstock secret list shows them")

    def record(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log."""
        self._store.audit.add(
            AuditRecord(
                at=entry.at.timestamp(),
                who=entry.who,
                role=entry.role,
                action=entry.action,
                target=entry.target,
                address=entry.address,
                outcome=entry.outcome,
            )
        )

    def audit(self, paging: Paging) -> Page[AuditEntry]:
        """Return the audit log, the newest first."""
        return views.page(self._store.audit.page(cursor=paging.cursor, limit=paging.limit), views.audit_view)
