"""Threads that open and rewrite the batches of clients, where a topic wants that: the loop goes on meanwhile.

The batches of one partition are prepared by one thread and come back in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from penstock.log.memory import Memory
from penstock.log.storage.batches import check_batches, headers
from penstock.log.storage.partition import Partition, Rules
from penstock.log.storage.preparing import must_open, prepare

_THREADS = 2  # each may hold one batch decompressed
_SMALL = 16 << 10  # bytes of records that are opened sooner than handed to a thread
_MOST_WAITING = 16 << 20  # bytes of requests, above which a client has to wait for the answer to its last one
Then = Callable[["bytearray | None", "BaseException | None"], None]


class Openers:
    """Prepares batches off the loop. `memory` counts what waits here among the requests that are held."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._threads = [ThreadPoolExecutor(1, f"penstock-log-opener-{number}") for number in range(_THREADS)]
        self.held = 0

    @property
    def is_full(self) -> bool:
        """Whether clients should send no more until something was done."""
        return self.held > _MOST_WAITING

    def submit(self, partition: Partition, records: memoryview, now: int, then: Then) -> None:
        """Prepare a copy of the records; call `then` on the loop, with the result or why there is none."""
        data = bytearray(records)
        where = f"{partition.topic}-{partition.index}"
        thread = self._threads[hash((partition.topic, partition.index)) % _THREADS]
        partition.preparing += 1
        token = partial(_nothing, object())  # tells this one from the others that hold memory
        self._hold(token, len(data))
        done = partial(self._done, partition, token, len(data), then)
        loop = asyncio.get_running_loop()
        future = thread.submit(_prepared, data, partition.rules, now, where)
        future.add_done_callback(lambda result: loop.call_soon_threadsafe(done, result))

    def _done(
        self, partition: Partition, token: Callable[[], None], size: int, then: Then, result: Future[bytearray]
    ) -> None:
        partition.preparing -= 1
        self.held -= size
        self._memory.hold(token, 0)
        error = result.exception()
        then(None if error else result.result(), error)

    def _hold(self, token: Callable[[], None], size: int) -> None:
        self.held += size
        self._memory.hold(token, size)

    def stop(self) -> None:
        """End the threads when they have finished."""
        for thread in self._threads:
            thread.shutdown()


def is_for_thread(partition: Partition, records: memoryview, now: int) -> bool:
    """Say whether records have to be opened and that may take long, or would overtake those that are being opened."""
    if partition.preparing:
        return True
    found = list(headers(records))
    if not must_open(found, partition.rules, now):
        return False
    return len(records) > _SMALL or any(batch.compression for _, batch in found)


def _prepared(data: bytearray, rules: Rules, now: int, where: str) -> bytearray:
    view = memoryview(data)
    batches = check_batches(view, rules.max_message_bytes)
    return prepare(view, batches, rules, now, where) if must_open(batches, rules, now) else data


def _nothing(_token: object) -> None:
    """Do nothing: what waits here needs nobody to let it go on."""
