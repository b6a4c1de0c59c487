"""Promise: under `--sync always` what was acknowledged survives a power cut at any moment. See tests/powerloss.py."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from penstock.log.storage.segments.files import FilePool
from tests.file_recorder import Recorder
from tests.log.storage.durability_checks import COMPACTED, PASSING, PLAIN, SHORT, Durable, Judge, Narrator, durable
from tests.powerloss import KILL, NOTHING, WAYS, Moment, settled

Story = Callable[[Narrator], Awaitable[None]]
SMALL = {"segment_bytes": "1024"}


async def produce_and_roll(tell: Narrator) -> None:
    await tell.create("plain", **SMALL)
    for _ in range(4):
        await tell.send(PLAIN, 7)
    await tell.producer_id()
    await tell.send(PLAIN, 3, producer=2)


async def fill_an_index(tell: Narrator) -> None:
    await tell.create("plain", segment_bytes="16384")
    for _ in range(8):
        await tell.send(PLAIN, 3, size=1500)


async def commit_offsets(tell: Narrator) -> None:
    await tell.create("plain")
    await tell.send(PLAIN)
    for number in range(12):
        await tell.commit("readers", PLAIN, number)
        await tell.commit(f"group-{number % 2}", PLAIN, number)


async def compact(tell: Narrator) -> None:
    await tell.create("short", **SMALL)
    await tell.create("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0", **SMALL)
    for keys in (4, 3):
        await tell.send(COMPACTED, 15, keys=keys)
        await tell.clean()
    await tell.send(COMPACTED, 3)


async def delete_old_records(tell: Narrator) -> None:
    await tell.create("short", retention_bytes="3000", **SMALL)
    await tell.create("plain", **SMALL)
    for _ in range(3):
        await tell.send(SHORT, 12)
        await tell.clean()
    await tell.send(PLAIN, 20)
    tell.delete_records(PLAIN, 13)
    await tell.send(PLAIN, 2)


async def transact(tell: Narrator) -> None:
    for topic in ("plain", "orders", "payments"):
        await tell.create(topic, **SMALL)
    for number in range(5):
        await tell.transact(commit=number != 2)


async def create_and_delete(tell: Narrator) -> None:
    for _ in range(3):
        await tell.create("passing", **SMALL)
        await tell.send(PASSING, 6)
        await tell.commit("readers", PASSING, 6)
        await tell.delete("passing")
    await tell.create("passing", **SMALL)
    await tell.send(PASSING, 20)


# The first and every other one run in short (tests/conftest.py): only `transact` has transactions, as sinks do.
STORIES = (transact, fill_an_index, commit_offsets, compact, delete_old_records, produce_and_roll, create_and_delete)


async def everything(tell: Narrator) -> None:
    """What a broker does after it was killed, whatever was there before."""
    await tell.producer_id()
    store = tell._broker.store
    for name in ("plain", "short", "compacted"):
        if name in store.topics:
            await tell.send((name, 0), 9)
    if "plain" in store.topics:
        await tell.commit("readers", PLAIN, 100)
    if "payments" in store.topics:
        await tell.transact(commit=True)
    if "compacted" in store.topics:
        await tell.clean()
        await tell.send(COMPACTED, 2)
    if "passing" in store.topics:
        await recreate_during_scrub(tell)


async def recreate_during_scrub(tell: Narrator) -> None:
    await tell.recreate_during_scrub("passing")
    await tell.send(PASSING, 9)


def recorded(folder: Path, story: Story, after: Moment | None = None) -> Recorder:
    """Let a story happen, and after that the broker stop, and return what it did to the disk."""
    recorder = Recorder(folder, after)

    async def whole() -> None:
        async with durable(folder) as broker:
            tell = Narrator(broker, recorder.mark, after.facts if after else ())
            if after:
                await tell.send_again(after.facts)
            await story(tell)

    with recorder:
        asyncio.run(whole())
    return recorder


async def judged(folder: Path, facts: list[object]) -> list[str]:
    broker = Durable(folder)
    await broker.start()
    try:
        return await Judge(broker, facts).run()
    finally:
        await broker.stop()


def findings(recorder: Recorder, folder: Path, share: float, seed: int) -> Iterator[str]:
    """Crash, recover, and judge: with each new promise without anything that was not synced, else at some moments."""
    chance, promised = random.Random(seed), 0
    for moment in recorder.moments():
        is_new, promised = len(moment.facts) > promised, len(moment.facts)
        for way in WAYS:
            if (is_new and way is NOTHING) or chance.random() < share:
                left = moment.leave(way, folder / f"{moment.at}-{way.label}", seed)
                found = asyncio.run(judged(left, list(moment.facts)))
                yield from (f"{way.label}, {moment}: {each}" for each in found)


def first_findings(found: Iterator[str], most: int = 5) -> list[str]:
    return [each for _, each in zip(range(most), found, strict=False)]


def busy(recorder: Recorder, chance: random.Random, times: int) -> list[Moment]:
    """Return some of the moments with most unsynced changes: there a process has left most to the system."""
    found = sorted((moment.kept() for moment in recorder.moments() if moment.facts), key=lambda one: one.unsynced)
    found = found[len(found) * 2 // 3 :]
    return chance.sample(found, min(times, len(found)))


def crash_again(recorder: Recorder, folder: Path, seed: int, times: int, share: float) -> Iterator[str]:
    """Kill the broker at some moments, let the next one go on, and cut the power on that one."""
    chance = random.Random(seed)
    for moment in busy(recorder, chance, times):
        data = moment.leave(KILL, folder / f"killed-{moment.at}")
        following = recorded(data, everything, moment)
        found = findings(following, folder / f"after-{moment.at}", share, seed)
        yield from (f"killed {moment}, then {each}" for each in found)


def crash_while_recovering(recorder: Recorder, folder: Path, seed: int, times: int, share: float) -> Iterator[str]:
    """Cut the power at some moments, and again while the next broker recovers."""
    chance = random.Random(seed)
    for moment in busy(recorder, chance, times):
        way = chance.choice(WAYS)
        data = moment.leave(way, folder / f"cut-{moment.at}", seed)
        recovering = Recorder(data, settled(data, moment.facts))
        with recovering:
            asyncio.run(started_and_stopped(data))
        found = findings(recovering, folder / f"after-{moment.at}", share, seed)
        yield from (f"{way.label}, {moment}, then {each}" for each in found)


async def started_and_stopped(folder: Path) -> None:
    async with durable(folder) as broker:
        for place in broker.store.written():
            broker.store.partition(*place)


def test_a_late_sync_of_a_deleted_file_does_not_stand_for_the_next_file_of_that_name(tmp_path: Path) -> None:
    """As when a topic is deleted and created again while its last segment waits for an fsync."""
    path, handles, recorder = tmp_path / "data" / "t-0" / "0.log", FilePool(), Recorder(tmp_path / "data")
    with recorder:
        path.parent.mkdir(parents=True)
        deleted = handles.create(path)
        handles.evict(path)
        path.unlink()
        created = handles.create(path)
        deleted.sync()
        created.write(b"acknowledged", 0)
        path.with_name("elsewhere").touch()
        created.sync()
    *_, last = recorder.moments()
    assert (last.leave(NOTHING, tmp_path / "left") / "t-0" / "0.log").read_bytes() == b"acknowledged"
    assert (tmp_path / "left" / "t-0" / "elsewhere").exists()


every_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)


@every_story
def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path, story: Story) -> None:
    recorder = recorded(tmp_path / "data", story)
    assert first_findings(findings(recorder, tmp_path / "crashes", 0.04, 1)) == []


@every_story
def test_what_was_acknowledged_after_a_kill_survives_a_power_cut(tmp_path: Path, story: Story) -> None:
    recorder = recorded(tmp_path / "data", story)
    assert first_findings(crash_again(recorder, tmp_path / "crashes", 1, 2, 0.01)) == []


@every_story
def test_a_power_cut_during_recovery_loses_nothing(tmp_path: Path, story: Story) -> None:
    recorder = recorded(tmp_path / "data", story)
    assert first_findings(crash_while_recovering(recorder, tmp_path / "crashes", 1, 1, 0.1)) == []


def test_what_was_acknowledged_in_a_topic_survives_although_its_predecessor_was_being_scrubbed(tmp_path: Path) -> None:
    *_, stopped = recorded(tmp_path / "data", create_and_delete).moments()
    recorder = recorded(stopped.leave(KILL, tmp_path / "restarted"), recreate_during_scrub, stopped.kept())
    assert first_findings(findings(recorder, tmp_path / "crashes", 0.2, 1)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
@every_story
def test_what_was_acknowledged_survives_a_power_cut_at_every_moment(tmp_path: Path, story: Story, seed: int) -> None:
    recorder = recorded(tmp_path / "data", story)
    assert first_findings(findings(recorder, tmp_path / "crashes", 1, seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@every_story
def test_what_was_acknowledged_survives_many_kills_and_power_cuts(tmp_path: Path, story: Story, seed: int) -> None:
    recorder = recorded(tmp_path / "data", story)
    assert first_findings(crash_again(recorder, tmp_path / "killed", seed, 6, 0.03)) == []
    assert first_findings(crash_while_recovering(recorder, tmp_path / "cut", seed, 6, 0.2)) == []
