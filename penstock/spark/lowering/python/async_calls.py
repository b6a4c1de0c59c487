"""Calls of an async function on many rows: a bounded number at once, on an event loop in a thread of its own.

The thread that reads rows and returns results is Spark's; it only waits when enough calls are in flight.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from penstock.durations import span_text

# Rows that are read while earlier ones are in flight: a few batches of Spark's, so that no slow call stops others.
AHEAD = 10_000
_SHARE = 1_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(frozen=True)
class Calls:
    """How a task calls the function: `at_once` is its share of the job's concurrency."""

    fn: Callable[..., Any]
    using: Callable[[], Any] | None
    at_once: int
    timeout_us: int
    retries: int
    in_order: bool


class Answer(NamedTuple):
    """The result of one row: what the function returned, or the last error after all retries."""

    row: Any
    made: Any = None
    error: Exception | None = None


class AsyncCaller:
    """Runs the calls of one task; a context manager, because it owns a thread, a loop and what `using` made."""

    def __init__(
        self,
        calls: Calls,
        given: Callable[[Any], Any] = lambda row: row,
        known: Callable[[Any], Answer | None] = lambda row: None,
    ) -> None:
        """Take the calls; `given` makes the function's argument of a row, `known` has answers that need no call."""
        self.calls, self._given, self._known = calls, given, known
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="map_async", daemon=True)
        self._extra: tuple[Any, ...] = ()
        self._waiting: deque[tuple[int, Any]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._answers: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
        self._early: dict[int, Answer] = {}
        self._put = self._given_out = 0

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        finally:
            self._end()

    def answers(self, batches: Iterable[list[Any]]) -> Iterator[list[Answer]]:
        """Yield the results of the rows, in their order or as they come; later batches are in flight by then."""
        for rows in batches:
            numbered = list(enumerate(rows, self._put))
            self._put += len(numbered)
            self._loop.call_soon_threadsafe(self._feed, numbered)
            yield from self._taken(AHEAD)
        yield from self._taken(0)

    @property
    def _in_flight(self) -> int:
        return self._put - self._given_out

    def _taken(self, ahead: int) -> Iterator[list[Answer]]:
        """Wait until no more than so many rows are ahead, and yield the answers that are next."""
        while self._in_flight > ahead:
            for _ in range(min(_SHARE, self._in_flight - len(self._early))):
                number, answer = self._answers.get()
                self._early[number] = answer
            ready = list(self._ready())
            self._given_out += len(ready)
            if ready:
                yield ready

    def _ready(self) -> Iterator[Answer]:
        if not self.calls.in_order:
            found, self._early = self._early, {}
            yield from found.values()
            return
        number = self._given_out
        while number in self._early:
            yield self._early.pop(number)
            number += 1

    # --- on the loop ------------------------------------------------------------------------------

    def _feed(self, rows: list[tuple[int, Any]]) -> None:
        self._waiting.extend(rows)
        for _ in range(min(len(self._waiting), self.calls.at_once - len(self._workers))):
            self._workers.add(self._loop.create_task(self._work()))

    async def _work(self) -> None:
        while self._waiting:
            number, row = self._waiting.popleft()
            self._answers.put((number, await self._answer(row)))
        # In the same step in which it found the queue empty: `_feed` relies on the number of workers that are left.
        self._workers -= {asyncio.current_task()}

    async def _answer(self, row: Any) -> Answer:
        """Call until there is an answer; what the function itself cancels is not tried again."""
        try:
            if (known := self._known(row)) is not None:
                return known
            given = self._given(row)
        except Exception as error:  # one row's answer, whatever fails: the worker must go on with the others
            return Answer(row, error=error)
        for left in range(self.calls.retries, -1, -1):
            try:
                return Answer(row, await self._call(given))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                return Answer(row, error=RuntimeError("the call was cancelled"))
            except Exception as error:  # user code may raise anything
                if not left:
                    return Answer(row, error=error)
            await asyncio.sleep(_pause(self.calls.retries - left))
        raise AssertionError

    async def _call(self, given: Any) -> Any:
        limit = asyncio.timeout(self.calls.timeout_us / 1e6)
        try:
            async with limit:
                return await self.calls.fn(given, *self._extra)
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"no answer within {span_text(self.calls.timeout_us)}, {self.calls.retries + 1} times"
            raise TimeoutError(message) from error

    async def _open(self) -> None:
        # On the loop: clients bind to the one that runs when they are made.
        if self.calls.using is not None:
            self._extra = (await _awaited(self.calls.using()),)

    async def _close(self) -> None:
        self._waiting.clear()
        running = tuple(self._workers)
        for worker in running:
            worker.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for made in self._extra:
            close = getattr(made, "aclose", None) or getattr(made, "close", None)
            if callable(close):
                await _awaited(close())

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _pause(tried: int) -> float:
    """Return how long to wait before the next retry: exponential, with jitter."""
    return min(_FIRST_PAUSE * float(2**tried), _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
