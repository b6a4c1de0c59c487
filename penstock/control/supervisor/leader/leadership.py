"""Leadership: of all managers of a store, the holder of the lease acts; the others stand by."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from penstock.control.store.repositories.leases import MANAGER, Lease
from penstock.control.store.store import Store
from penstock.control.supervisor.drivers.launchers import LocalLauncher
from penstock.control.supervisor.event_bus import EventBus
from penstock.control.supervisor.leader.active_manager import ActiveManager
from penstock.control.supervisor.leader.recording import Recording
from penstock.control.supervisor.options import Options
from penstock.errors import Fenced, PenstockError, StoreUnavailable

# A lease of P seconds is renewed every P/3, and given up P/6 before it could expire.
_RENEWALS, _MARGIN = 3.0, 1 / 6
_RETRY_SECONDS = 1.0
_logger = logging.getLogger(__name__)


class Leadership:
    """Acquires the lease, acts as long as it has it, and starts over; `term` is the present one, if it acts."""

    def __init__(
        self,
        store: Store,
        options: Options,
        launcher: LocalLauncher,
        bus: EventBus,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._options, self._launcher, self._clock = store, options, launcher, clock
        self.bus, self.recording = bus, Recording()
        self.term: ActiveManager | None = None
        self._replaces: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_active(self) -> bool:
        """Whether this manager has the lease."""
        return self.term is not None

    def take_over(self, lease: Lease | None) -> None:
        """Take the lease at once: its holder is known to be dead."""
        self._replaces = lease.token if lease is not None else None

    def wake(self) -> None:
        """Look for commands and new jobs now; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self.term is not None:
            self.term.wake()

    async def run(self) -> None:
        """Act whenever this manager has the lease; runs until it is cancelled."""
        self._loop = asyncio.get_running_loop()
        self.bus.bind(self._loop)
        while True:
            token = await self._acquire()
            if token is None:
                await asyncio.sleep(self._options.lease_seconds / _RENEWALS)
                continue
            await self._serve(token)

    async def _acquire(self) -> int | None:
        lease = self._options.lease_seconds
        try:
            return await asyncio.to_thread(
                self._store.leases.acquire, MANAGER, self._options.holder, lease, replaces=self._replaces
            )
        except PenstockError as error:
            _logger.warning("the lease cannot be acquired: %s", error.message)
            return None

    async def _serve(self, token: int) -> None:
        _logger.info("%s is active, with token %d", self._options.holder, token)
        self.bus.publish("active", manager=self._options.holder)
        term = ActiveManager(self._store, token, self._options, self._launcher, self.bus, self.recording, self._clock)
        self.term = term
        acting = asyncio.create_task(term.run(), name="active manager")
        keeping = asyncio.create_task(self._keep(token), name="lease")
        try:
            await asyncio.wait((acting, keeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.term = None
            for task in (acting, keeping):
                task.cancel()
            results = await asyncio.gather(acting, keeping, return_exceptions=True)
            self._explain(token, results)
        await asyncio.sleep(_RETRY_SECONDS)

    def _explain(self, token: int, results: Iterable[object]) -> None:
        """Log why the term has ended. If the lease is still ours, the next term need not wait for it."""
        errors = [error for result in results for error in _flat(result)]
        fenced = any(isinstance(error, Fenced) for error in errors)
        self._replaces = None if fenced else token
        for error in errors:
            if isinstance(error, (Fenced, StoreUnavailable)):
                _logger.warning("%s stops acting: %s", self._options.holder, error.message)
            else:
                _logger.error("%s stops acting", self._options.holder, exc_info=error)

    async def _keep(self, token: int) -> None:
        """Renew the lease until it is lost, or until it might be."""
        period = self._options.lease_seconds
        expires = time.monotonic() + period
        while True:
            await asyncio.sleep(period / _RENEWALS)
            started = time.monotonic()
            if started > expires - period * _MARGIN:
                message = "the lease could not be renewed in time"
                raise StoreUnavailable(message, transient=True)
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(expires - started):
                    renewed = await asyncio.to_thread(self._store.leases.renew, MANAGER, token, period)
                if not renewed:
                    message = "another job manager has the lease"
                    raise Fenced(message)
                expires = started + period

    async def release(self) -> None:
        """Give the lease up, so that a standby need not wait for its end."""
        if self._replaces is not None:
            with contextlib.suppress(PenstockError):
                await asyncio.to_thread(self._store.leases.release, MANAGER, self._replaces)


def _flat(error: object) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [one for part in error.exceptions for one in _flat(part)]
    if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
        return [error]
    return []
