"""A scrub that is held while something else happens to its topic."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

from penstock.log import cleaner
from penstock.log.broker import Broker
from penstock.log.storage.integrity import ScrubTask
from penstock.log.storage.segments.segment import Damage


@asynccontextmanager
async def scrubbing(broker: Broker, topic: str) -> Any:
    """Do something while the cleaner's thread scrubs the first segment of a topic."""
    loop, started, go_on, original = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), cleaner.scrub

    def held(task: ScrubTask, throttle: Callable[[], None]) -> list[Damage]:
        if task.segment.path.parent.name.startswith(f"{topic}-"):
            loop.call_soon_threadsafe(started.set)
            go_on.wait(20)
        return original(task, throttle)

    with patch.object(cleaner, "scrub", held):
        round_ = loop.create_task(broker.cleaner.clean_all())
        async with asyncio.timeout(20):
            await asyncio.wait({round_, loop.create_task(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield
        finally:
            go_on.set()
            await round_
            started.set()
