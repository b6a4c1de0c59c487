"""The store of the job manager: its repositories, transactions and the fence against an older manager."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Self

from sqlalchemy import Connection, text

from penstock.control.store.database import open_engine, translated_errors, writing_engine
from penstock.control.store.repositories.audit import Audit
from penstock.control.store.repositories.commands import Commands
from penstock.control.store.repositories.epochs import Epochs
from penstock.control.store.repositories.exceptions import JobExceptions
from penstock.control.store.repositories.idempotency import IdempotencyKeys
from penstock.control.store.repositories.jobs import Jobs
from penstock.control.store.repositories.leases import MANAGER, Leases
from penstock.control.store.repositories.nodes import Nodes
from penstock.control.store.repositories.repository import Connections
from penstock.control.store.repositories.runs import Runs
from penstock.control.store.repositories.savepoints import Savepoints
from penstock.control.store.repositories.secrets import StoredSecrets
from penstock.control.store.repositories.series import SeriesStore
from penstock.control.store.repositories.tokens import Tokens
from penstock.control.store.repositories.transitions import Transitions
from penstock.control.store.repositories.versions import Versions
from penstock.control.store.schema_version import migrate
from penstock.errors import Fenced
from penstock.masking import masked


class Repositories:
    """All repositories, over the same connections."""

    def __init__(self, connections: Connections) -> None:
        self.jobs = Jobs(connections)
        self.versions = Versions(connections)
        self.runs = Runs(connections)
        self.transitions = Transitions(connections)
        self.commands = Commands(connections)
        self.epochs = Epochs(connections)
        self.nodes = Nodes(connections)
        self.savepoints = Savepoints(connections)
        self.exceptions = JobExceptions(connections)
        self.series = SeriesStore(connections)
        self.leases = Leases(connections)
        self.tokens = Tokens(connections)
        self.secrets = StoredSecrets(connections)
        self.audit = Audit(connections)
        self.idempotency = IdempotencyKeys(connections)


class Transaction(Repositories):
    """All repositories within one transaction: what they write is committed together, or not at all."""

    def __init__(self, connection: Connection, clock: Callable[[], float]) -> None:
        self.connection, self.clock = connection, clock
        super().__init__(self)

    def reading(self) -> AbstractContextManager[Connection]:
        """Return the connection of the transaction."""
        return nullcontext(self.connection)

    def writing(self) -> AbstractContextManager[Connection]:
        """Return the connection of the transaction."""
        return nullcontext(self.connection)


class Store(Repositories):
    """All that the job manager knows. Safe for threads.

    A call of a repository, such as `store.jobs.get(id)`, is a transaction of its own. Several together:

        with store.begin(token) as write:
            write.jobs.update(job, state="RUNNING")
            write.transitions.add(job, "STARTING", "RUNNING", "the driver reports it")

    `token` is that of the manager's lease; with an older one, nothing is written, and `Fenced` is raised. While the
    database is away, every call raises `StoreUnavailable`; once it is back, calls succeed again.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self.clock, self.address = clock, masked(url)
        self._engine = open_engine(url)
        self._writer = writing_engine(self._engine)
        super().__init__(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def migrate(self) -> None:
        """Create the tables or bring them to this version's form; call it once, at start."""
        with self.writing() as connection:
            migrate(connection)

    @contextmanager
    def begin(self, token: int | None = None, *, lease: str = MANAGER) -> Iterator[Transaction]:
        """Run a transaction that writes; with a token, only as long as the lease has it."""
        with self.writing() as connection:
            transaction = Transaction(connection, self.clock)
            if token is not None and not transaction.leases.lock(lease, token):
                message = f"another job manager has taken the lease {lease!r} over; token {token} is old"
                raise Fenced(message, node="store", hint="this manager must stop writing, and wait for the lease")
            yield transaction

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a connection for a transaction that only reads."""
        return self._transaction(writing=False)

    def writing(self) -> AbstractContextManager[Connection]:
        """Return a connection for a transaction that may write; committed unless an error is raised."""
        return self._transaction(writing=True)

    @contextmanager
    def _transaction(self, *, writing: bool) -> Iterator[Connection]:
        engine = self._writer if writing else self._engine
        with translated_errors(self.address), engine.begin() as connection:
            yield connection

    def ping(self) -> None:
        """Raise StoreUnavailable if the database does not answer."""
        with self.reading() as connection:
            connection.execute(text("SELECT 1"))

    def prune(self) -> None:
        """Delete what is past its retention. Call it every few minutes; each part is a transaction of its own."""
        now = self.clock()
        self.series.prune(now)
        self.runs.prune(now)
        self.commands.prune(now)
        self.audit.prune(now)
        self.idempotency.prune(now)
        self.jobs.purge(now)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()
