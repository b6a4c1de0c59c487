"""What the routes need of a job manager. The supervisor implements it over the store.

Methods are called in threads and may block, but for `subscribe` and `follow_logs`, which are called on the event loop.
`job` is an id or a name. A job that does not exist is an UnknownJob with close names in its hint; a request that the
state of the job does not allow is a RequestRefused; a store that is away is a StoreUnavailable. Any other PenstockError
is the user's mistake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.control.api.access import AuditEntry, NewToken, Role, Secret, Token, TokenRequest
from penstock.control.api.cluster import Cluster, Readiness
from penstock.control.api.commands import Command, Kind
from penstock.control.api.differences import Difference
from penstock.control.api.history import Checkpoint, Epoch, JobException, Savepoint, Transition
from penstock.control.api.jobs import Job, JobFilter, Plan, Submission, Update, Version
from penstock.control.api.nodes import NodeList, PlanPreview
from penstock.control.api.pages import Page, Paging
from penstock.control.api.samples import Diverted, DivertedQuery, NodeSample, Replay, Replayed
from penstock.control.api.series import Series, SeriesQuery, Sparkline, SparklineQuery
from penstock.control.api.state import StateQuery, StateTable


@dataclass(frozen=True)
class Caller:
    """Who sent a request: the name and role of the token, or a local user where no token is required."""

    name: str
    role: Role
    address: str | None = None


@dataclass(frozen=True)
class Source:
    """An uploaded file: `NAME.py`, or a zip of a folder. The name has no folder in it."""

    filename: str
    content: bytes


@dataclass(frozen=True)
class IdempotencyKey:
    """A key that a client gave to its request, and the digest of what it asked for."""

    key: str
    digest: str


@dataclass(frozen=True)
class Submitted:
    """The job of a submission; `created` is false if an earlier request with the same key has created it."""

    job: Job
    created: bool = True


class Principal(Protocol):
    """The holder of a token."""

    @property
    def name(self) -> str:
        """The name of the token."""

    @property
    def role(self) -> str:
        """The role: viewer, operator or admin."""


class Access(Protocol):
    """Tokens: whether they are required, and whose one is."""

    def required(self) -> bool:
        """Return whether requests need a token: as soon as there is one, or the server listens beyond loopback."""

    def known_requirement(self) -> bool | None:
        """Return the same at once, without asking the store; None if it must be asked."""

    def authenticate(self, token: str, /) -> Principal | None:
        """Return the holder of a token; None if there is none, or it has expired."""


class Subscription(Protocol):
    """Events of one client. `missed` counts those that were dropped because it read too slowly."""

    missed: int

    def __aiter__(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield events with the fields of `api.events.Event`, until the subscription is closed."""

    def close(self) -> None:
        """End the subscription."""


class JobRequests(Protocol):
    """What changes jobs."""

    def submit(self, submission: Submission, source: Source, caller: Caller, key: IdempotencyKey | None) -> Submitted:
        """Check the plan and store the job. A key that was used for another request is a RequestRefused."""

    def preview(self, submission: Submission, source: Source) -> PlanPreview:
        """Check the plan as `submit` does, and store nothing."""

    def request(self, job: str, kind: Kind, arguments: Mapping[str, Any], caller: Caller) -> Command:
        """Store a command: stop, cancel, restart, rescale, savepoint or delete; `arguments` as in machine.events.

        `savepoint` of a stop is a name, True for a name that the manager chooses, or missing; `name` of a savepoint
        may be missing.
        """

    def update(self, job: str, update: Update, source: Source, caller: Caller) -> Command:
        """Check the plan of a new version, store it, and the command to update to it."""


class JobReports(Protocol):
    """What is known about jobs."""

    def list_jobs(self, filters: JobFilter) -> Page[Job]:
        """Return a page of jobs, the newest first."""

    def get_job(self, job: str) -> Job:
        """Return a job."""

    def plan(self, job: str, version: int | None) -> Plan:
        """Return the plan of a version, or of the present one."""

    def nodes(self, job: str, version: int | None) -> NodeList:
        """Return the nodes of a version's plan; of the present one with the figures of the newest epoch."""

    def versions(self, job: str, paging: Paging) -> Page[Version]:
        """Return the versions of a job, the newest first."""

    def difference(self, job: str, version: int, to: int | None) -> Difference:
        """Return what differs between two versions; `to` is the present one by default."""

    def version_source(self, job: str, version: int) -> str:
        """Return the entry file of a version."""

    def epochs(self, job: str, paging: Paging) -> Page[Epoch]:
        """Return the epochs of a job, the newest first."""

    def checkpoints(self, job: str, paging: Paging) -> Page[Checkpoint]:
        """Return the epochs that a job can be restored from, the newest first."""

    def savepoints(self, job: str, paging: Paging) -> Page[Savepoint]:
        """Return the savepoints of a job, the newest first."""

    def exceptions(self, job: str, paging: Paging) -> Page[JobException]:
        """Return the errors of a job, the newest first."""

    def transitions(self, job: str, paging: Paging) -> Page[Transition]:
        """Return the transitions of a job, the newest first."""

    def commands(self, job: str, paging: Paging) -> Page[Command]:
        """Return the commands of a job, the newest first."""

    def command(self, command: str) -> Command:
        """Return a command by its id, also that of a deleted job."""

    def logs(self, job: str, tail: int) -> list[str]:
        """Return the last lines of a job's log, without line ends."""

    def follow_logs(self, job: str, tail: int) -> AsyncIterator[str]:
        """Yield the last lines, then new ones; end when the job is deleted or in a final state."""

    def series(self, job: str, query: SeriesQuery) -> list[Series]:
        """Return metrics of a job."""

    def sparklines(self, query: SparklineQuery) -> list[Sparkline]:
        """Return one metric of all jobs that have it, over the last minutes."""

    def state(self, job: str, query: StateQuery) -> StateTable:
        """Return rows of the state of a job."""


class JobRows(Protocol):
    """Rows of jobs, which take their code or their checkpoint to read: seconds, and bounded in time."""

    def sample(self, job: str, node: str, limit: int) -> NodeSample:
        """Return some rows of a node; RequestRefused where they exist only while the job runs."""

    def diverted(self, job: str, query: DivertedQuery) -> Diverted:
        """Return the newest rejected or late rows; RequestRefused if the pipeline has no sink for them."""

    def replay(self, job: str, request: Replay) -> Replayed:
        """Send rejected rows back to their source, each once."""


class Operations(Protocol):
    """The manager itself."""

    def subscribe(self, job: str | None, after: int | None) -> Subscription:
        """Subscribe to the events of one job (by id), or of all; `after` repeats recent ones with a higher `seq`."""

    def cluster(self) -> Cluster:
        """Return the state of the manager, its drivers and resources."""

    def readiness(self) -> Readiness:
        """Return whether the manager can serve requests; never raise."""

    def metrics_page(self) -> bytes:
        """Return the metrics in Prometheus's text format (`prometheus_client.generate_latest`)."""

    def tokens(self) -> list[Token]:
        """Return all tokens that are not revoked."""

    def create_token(self, request: TokenRequest, caller: Caller) -> NewToken:
        """Create a token."""

    def revoke_token(self, token: str) -> None:
        """Revoke a token by its id; an unknown one is an UnknownJob."""

    def secrets(self) -> list[Secret]:
        """Return all secrets, without values."""

    def set_secret(self, name: str, value: str, caller: Caller) -> Secret:
        """Set a secret, or change it."""

    def delete_secret(self, name: str) -> None:
        """Delete a secret by its name; an unknown one is an UnknownJob."""

    def record(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log."""

    def audit(self, paging: Paging) -> Page[AuditEntry]:
        """Return the audit log, the newest first."""


class Manager(JobRequests, JobReports, JobRows, Operations, Protocol):
    """The job manager, as the routes see it."""
