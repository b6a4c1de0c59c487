"""A broker of the real kind, on a real folder, whose clock is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.log.groups.classic.events import Joined, Sync, Synced
from penstock.log.groups.formats import Committed
from tests.log.groups.group_driver import join
from tests.log.transactions.brokers import Still, running

Story = Callable[[Still], Awaitable[None]]
TRADES = ("trades", 0)


def play(folder: Path, *stories: Story) -> None:
    """Let each story happen on a broker that finds what the one before has left."""

    async def whole() -> None:
        now = 1_000_000
        for story in stories:
            broker = Still(folder)
            broker.now = now
            async with running(broker):
                if "trades" not in broker.store.topics:
                    broker.store.create_topic("trades", 4, {})
                await story(broker)
            now = broker.now

    asyncio.run(whole())


async def let_it_work() -> None:
    """Give every task that can go on the time to do so."""
    for _ in range(50):
        await asyncio.sleep(0)


async def pass_time(broker: Still, ms: int) -> None:
    """Ring every timer that is due, in order."""
    await let_it_work()
    until = broker.now + ms
    while due := [each for each in broker.planned if each.at <= until and not each.cancelled]:
        first = min(due, key=lambda each: each.at)
        broker.planned.remove(first)
        broker.now = max(broker.now, first.at)
        first.callback()
        await let_it_work()
    broker.now = until


async def only_member(broker: Still, group: str, **more: object) -> tuple[Joined, Synced]:
    """Become the only member of a new group, as clients do."""
    first = await broker.groups.join(group, join(**more))
    asked = join(first.member_id, **more) if first.member_id else join(**more)
    waiting = asyncio.create_task(broker.groups.join(group, asked))
    await pass_time(broker, broker.groups.settings.initial_delay + 10)
    joined = await waiting
    parts = {joined.member_id: b"everything"}
    sync = Sync(generation=joined.generation, member_id=joined.member_id, assignments=parts)
    return joined, await broker.groups.sync(group, sync)


def offset(number: int, timestamp: int = 0) -> Committed:
    return Committed(number, 0, "", timestamp)


def number(broker: Still, group: str = "g", place: tuple[str, int] = TRADES) -> int | None:
    """How far a group has come."""
    found = broker.groups.offsets.of(group).get(place)
    return None if found is None else found.offset
