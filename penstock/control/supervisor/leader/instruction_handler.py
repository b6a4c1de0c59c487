"""Carries out the instructions of the state machine. Each may come again, and has then no further effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from penstock.control.machine.events import DriverGone, TimerDue
from penstock.control.machine.instructions import (
    AskCancel,
    AskStop,
    FinishCommand,
    Instruction,
    Kill,
    Launch,
    RemoveFiles,
    RequestSlots,
    TakeSavepoint,
    WakeAt,
)
from penstock.control.machine.job import Job
from penstock.control.supervisor.drivers.connection import Message
from penstock.control.supervisor.drivers.driver import Driver
from penstock.control.supervisor.drivers.processes import kill_all
from penstock.control.supervisor.leader.file_removal import remove_files_of_deleted_jobs
from penstock.control.supervisor.leader.launching import Launching
from penstock.control.supervisor.leader.term import SLOTS, Term

_logger = logging.getLogger(__name__)


class InstructionHandler:
    """Acts for one active manager. What takes time runs beside the loop."""

    def __init__(self, term: Term, launching: Launching) -> None:
        self._term, self._launching = term, launching
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop acting."""
        for timer in self._timers.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()

    def carry_out(self, job: str, instructions: Iterable[Instruction]) -> None:
        """Carry instructions out, in their order."""
        self._cancel_stale_timer(job)
        for instruction in instructions:
            self._carry_out(job, instruction)

    def _carry_out(self, job: str, instruction: Instruction) -> None:
        match instruction:
            case RequestSlots():
                self._term.put(job, SLOTS)
            case Launch():
                self._launching.launch(job, instruction)
            case AskStop(run) | AskCancel(run) | TakeSavepoint(run):
                self._tell(job, run, message_of(job, instruction))
            case Kill(run, why):
                self._spawn(self._kill(job, run, why))
            case WakeAt(at):
                self._set_timer(job, at)
            case FinishCommand(command, ok, message):
                self._term.bus.publish("command", job, command=command, ok=ok, message=message)
            case RemoveFiles():
                options, store = self._term.options, self._term.store
                self._spawn(asyncio.to_thread(remove_files_of_deleted_jobs, options.data, store))
            case _:
                pass

    def repeat(self, driver: Driver, machine: Job, instructions: Iterable[Instruction], *, has_job: bool) -> None:
        """Send to a driver, which has just connected, what it has to do for a job."""
        for instruction in instructions:
            match instruction:
                case Launch():
                    if not has_job:
                        self._launching.launch(machine.id, instruction)
                case AskStop() | AskCancel() | TakeSavepoint():
                    self._spawn(_send(driver, message_of(machine.id, instruction)))
                case _:
                    pass

    def _tell(self, job: str, run: str, message: Message) -> None:
        driver = self._term.drivers.of_run(run)
        if driver is not None:
            # One that is not connected gets it once it is.
            self._spawn(_send(driver, message))
        elif not self._launching.is_launching(run):
            self._term.put(job, DriverGone(run))

    async def _kill(self, job: str, run: str, why: str) -> None:
        driver = self._term.drivers.of_run(run)
        if driver is None:
            await self._launching.abandon(run)
            await asyncio.to_thread(kill_all, run)
            self._term.put(job, DriverGone(run, why))
            return
        _logger.warning("driver %s is killed: %s", driver.name, why)
        await driver.kill()

    def _set_timer(self, job: str, at: float) -> None:
        self._cancel_timer(job)
        loop = asyncio.get_running_loop()
        delay = max(at - self._term.clock(), 0.0)
        # The event loop may be early by its resolution, and the state machine compares times.
        self._timers[job] = loop.call_later(delay + 0.01, self._term.put, job, TimerDue())

    def _cancel_stale_timer(self, job: str) -> None:
        machine = self._term.machines.get(job)
        if machine is None or machine.wake_at is None:
            self._cancel_timer(job)

    def _cancel_timer(self, job: str) -> None:
        timer = self._timers.pop(job, None)
        if timer is not None:
            timer.cancel()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def message_of(job: str, instruction: AskStop | AskCancel | TakeSavepoint) -> Message:
    """Return the message that asks a driver for it."""
    match instruction:
        case AskStop(_, savepoint):
            return {"type": "stop", "job": job, "savepoint": savepoint}
        case AskCancel():
            return {"type": "cancel", "job": job}
        case TakeSavepoint(_, name):
            return {"type": "savepoint", "job": job, "savepoint": name}


async def _send(driver: Driver, message: Message) -> None:
    await driver.send(message)


async def _logged(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        raise
    except Exception:  # the state machine repeats what has no effect
        _logger.exception("an instruction failed")
