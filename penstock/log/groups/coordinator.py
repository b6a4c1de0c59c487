"""The group coordinator: all groups and their committed offsets, as the handlers use them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import (
    NO_MEMBER,
    Commit,
    Delete,
    DeleteFailed,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Snapshot,
    Sync,
    Synced,
)
from penstock.log.groups.classic.group import Group, State
from penstock.log.groups.classic.runner import Runner
from penstock.log.groups.consumer.formats import ConsumerKey, Replay
from penstock.log.groups.consumer.groups import CanDescribe, ConsumerGroups
from penstock.log.groups.consumer.state import Answer, ConsumerSettings, Remove
from penstock.log.groups.consumer.state import Heartbeat as ConsumerHeartbeat
from penstock.log.groups.formats import Committed, GroupKey, OffsetKey
from penstock.log.groups.journal import Decision, Journal
from penstock.log.groups.offsets import OffsetStore, OffsetTable, TopicPartition, expired_offsets, is_abandoned

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of all groups, in milliseconds; the defaults are Kafka's except the first.

    A new group waits `initial_delay` for more members before its first generation. Kafka waits 3 s, for many machines
    that are deployed together, and so does `penstock log serve`; embedded in
    another process a short start matters more, and a second rebalance takes milliseconds.
    """

    initial_delay: int = 100
    min_session: int = 6_000
    max_session: int = 30 * 60_000
    offsets_retention: int = 7 * 24 * 3_600_000
    sweep_every: int = 10 * 60_000
    max_metadata_bytes: int = 4096
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)  # groups of the consumer protocol

    def described(self) -> dict[str, str]:
        """Return the settings that are start options, under Kafka's names."""
        numbers = {
            "group.consumer.heartbeat.interval.ms": self.consumer.heartbeat_interval,
            "group.consumer.session.timeout.ms": self.consumer.session_timeout,
            "group.initial.rebalance.delay.ms": self.initial_delay,
            "group.max.session.timeout.ms": self.max_session,
            "group.min.session.timeout.ms": self.min_session,
        }
        # A group cannot have members of both protocols.
        policy = {"group.consumer.migration.policy": "disabled"}
        return policy | {name: str(number) for name, number in numbers.items()}


class GroupCoordinator:
    """Serves all requests of consumer groups. An accepted request is completed even if the client disconnects."""

    def __init__(self, broker: Broker, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self._broker = broker
        self._journal = Journal(broker)
        self._offset_store = OffsetStore(self._journal)
        self._groups: dict[str, Group] = {}
        self._deleted_topics: set[str] = set()  # whose offsets are still being deleted
        self._runner = Runner(broker, self._journal)
        self.consumers = ConsumerGroups(broker, self._journal, self._runner, self.settings.consumer)
        self._sweeper: Timer | None = None

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by name, read-only."""
        return self._groups

    @property
    def offsets(self) -> OffsetTable:
        """Committed and pending offsets, read-only."""
        return self._offset_store.table

    @property
    def runner(self) -> Runner:
        """Runs the state machines of the classic groups."""
        return self._runner

    async def start(self) -> None:
        """Restore groups and offsets from the journal."""
        now = self._broker.clock()
        for name, stored in self._replay().items():
            self._groups[name] = Group.restored(name, stored, now, self.settings.initial_delay)
        await self._finish_deletions()
        for name in self.offsets.groups():
            self._ensure(name)
        for group in self._groups.values():
            self._runner.schedule(group)
        self._sweep_later()

    def _replay(self) -> dict[str, Snapshot]:
        groups: dict[str, Snapshot] = {}
        consumers = Replay()
        for line in self._journal.replay():
            if isinstance(line, Decision):
                self.offsets.end(line.producer_id, line.committed)
            elif isinstance(line.key, ConsumerKey):
                consumers.follow(line.key, cast(bytes | None, line.value))
            elif isinstance(line.key, OffsetKey):
                self.offsets.follow(line.producer_id, line.key, cast(Committed | None, line.value), line.position)
            elif isinstance(line.value, Snapshot):
                groups[line.key.group] = line.value
            else:
                groups.pop(line.key.group, None)
        self.consumers.start(consumers)
        return groups

    async def _finish_deletions(self) -> None:
        """Delete the offsets of topics that were deleted right before a crash."""
        topics = {key.topic for key in self.offsets.all_keys()} - self._broker.store.topics.keys()
        self._deleted_topics |= topics
        with suppress(LogError):  # the creation of such a topic tries again
            await self._forget(topics)

    async def stop(self) -> None:
        """Fail waiting requests with a retriable error, and finish the writes."""
        if self._sweeper:
            self._sweeper.cancel()
        self.consumers.stop()
        await self._runner.stop()

    async def join(self, group_id: str, event: Join) -> Joined:
        """Wait for the next generation of the group."""
        if not self.settings.min_session <= event.session_timeout <= self.settings.max_session:
            return Joined(0, ErrorCode.invalid_session_timeout, member_id=event.member_id)
        if event.member_id == NO_MEMBER and not await self._make_classic(group_id):
            return Joined(0, ErrorCode.inconsistent_group_protocol, member_id=event.member_id)
        known = event.member_id == NO_MEMBER or group_id in self._groups
        if not known:
            return Joined(0, ErrorCode.unknown_member_id, member_id=event.member_id)
        return cast(Joined, await self._runner.send(self._group(group_id), event))

    async def sync(self, group_id: str, event: Sync) -> Synced:
        """Wait for the assignment."""
        group = self._groups.get(group_id)
        if group is None:
            return Synced(0, ErrorCode.unknown_member_id)
        return cast(Synced, await self._runner.send(group, event))

    async def _make_classic(self, group_id: str) -> bool:
        """Delete an empty consumer group, to replace it by a classic one; return whether none of the name is left."""
        group = self.consumers.all.get(group_id)
        if group is not None and not group.members:
            await self._run_shielded(self.consumers.delete(group_id))
        return group_id not in self.consumers

    async def consumer_heartbeat(self, group_id: str, beat: ConsumerHeartbeat, can_describe: CanDescribe) -> Answer:
        """Apply a heartbeat of the consumer protocol; wait until its changes are durable."""
        answer = await asyncio.shield(self._runner.spawn(self._consumer_heartbeat(group_id, beat, can_describe)))
        if isinstance(answer, LogError):
            raise answer
        return answer

    async def _consumer_heartbeat(
        self, group_id: str, beat: ConsumerHeartbeat, can_describe: CanDescribe
    ) -> Answer | LogError:
        classic = self._groups.get(group_id)
        if classic is None:
            return await self.consumers.heartbeat(group_id, beat, can_describe)
        if classic.state is not State.EMPTY or classic.reserved:
            return LogError(ErrorCode.group_id_not_found, f"group {group_id!r} has members of the classic protocol")
        # An empty classic group becomes a consumer group: one batch deletes the one and creates the other.
        del self._groups[group_id]
        answer = await self.consumers.heartbeat(group_id, beat, can_describe, replaces=True)
        if group_id in self.consumers:
            self._runner.unschedule(classic)
        else:
            self._groups.setdefault(group_id, classic)
        return answer

    async def remove_consumer(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member of a consumer group."""
        work = self.consumers.remove(group_id, Remove(member_id, instance_id))
        return await asyncio.shield(self._runner.spawn(work))

    def submit(self, group_id: str, event: Heartbeat | Leave) -> ErrorCode:
        """Apply an event that is answered at once."""
        group = self._groups.get(group_id)
        return ErrorCode.unknown_member_id if group is None else self._runner.send(group, event).result().error

    def check_commit(self, group_id: str, event: Commit) -> ErrorCode:
        """Return the error code of a commit, or `none`; renews the member's session."""
        group = self._groups.get(group_id)
        if group is not None:
            return self._runner.send(group, event).result().error
        if group_id in self.consumers:
            return self.consumers.check_commit(group_id, event)
        if event.generation < 0:
            return ErrorCode.none
        if self.offsets.has_pending(group_id):  # created by a transaction
            return ErrorCode.unknown_member_id
        by_epoch = event.by_epoch and not event.transactional
        return ErrorCode.group_id_not_found if by_epoch else ErrorCode.illegal_generation

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error code of an offset fetch, or `none`; only members are checked."""
        if group_id not in self.consumers or (member_id is None and epoch < 0):
            return ErrorCode.none
        return self.consumers.check_member(group_id, member_id or NO_MEMBER, epoch)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets that `check_commit` allowed."""
        await self._run_shielded(self._offset_store.commit(group_id, offsets))
        self._ensure(group_id)

    async def begin_offsets(
        self, producer_id: int, producer_epoch: int, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Write offsets as part of a transaction, pending until `end_offsets`. They are appended before any await."""
        await self._offset_store.begin((producer_id, producer_epoch), group_id, offsets)

    def end_offsets(self, producer_id: int, committed: bool) -> None:
        """Commit or drop a producer's pending offsets, after its marker was written."""
        for name in self.offsets.end(producer_id, committed):
            self._ensure(name)

    async def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> None:
        """Delete offsets of a group."""
        known = self.offsets.of(group_id)
        keys = [OffsetKey(group_id, *each) for each in partitions if each in known]
        await self._run_shielded(self._offset_store.remove(keys))

    async def forget_topic(self, topic: str) -> None:
        """Delete the offsets of all groups for a deleted topic."""
        self._deleted_topics.add(topic)
        await self._run_shielded(self._forget({topic}))

    async def before_creation(self, topic: str) -> None:
        """Wait until no offsets of a deleted topic are left, which groups would take for those of the new one."""
        if topic in self._deleted_topics:
            await self.forget_topic(topic)

    async def _forget(self, topics: set[str]) -> None:
        await self._offset_store.remove_topics(topics)
        self._deleted_topics -= topics

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        if group_id in self.consumers:
            return await self._delete_consumer(group_id)
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        error = self._runner.send(group, Delete()).result().error
        if not error:
            # Tasks start in the order they were created, so earlier writes of the group precede its tombstone.
            await self._run_shielded(self._remove(group))
        return error

    async def _delete_consumer(self, group_id: str) -> ErrorCode:
        if self.consumers.all[group_id].members:
            return ErrorCode.non_empty_group
        await self._run_shielded(self._remove_consumer_group(group_id))
        return ErrorCode.none

    async def _remove_consumer_group(self, group_id: str) -> None:
        await self.delete_offsets(group_id, list(self.offsets.of(group_id)))
        group = self.consumers.all.get(group_id)
        if group is not None and not group.members:
            await self.consumers.delete(group_id)

    async def _remove(self, group: Group) -> None:
        try:
            await self.delete_offsets(group.id, list(self.offsets.of(group.id)))
            await self._journal.write({GroupKey(group.id): None})
        except LogError:
            self._runner.apply(group, DeleteFailed())
            raise
        self._groups.pop(group.id, None)
        self._runner.unschedule(group)

    def _ensure(self, group_id: str) -> None:
        if group_id not in self.consumers:
            self._group(group_id)

    def _group(self, group_id: str) -> Group:
        if group_id not in self._groups:
            self._groups[group_id] = Group(group_id, self.settings.initial_delay, since=self._broker.clock())
        return self._groups[group_id]

    async def _run_shielded(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(self._runner.spawn(work))

    def _sweep_later(self) -> None:
        self._sweeper = self._broker.call_later(self.settings.sweep_every / 1000, self._start_sweep)

    def _start_sweep(self) -> None:
        self._runner.spawn(self._sweep())
        self._sweep_later()

    async def _sweep(self) -> None:
        now, retention = self._broker.clock(), self.settings.offsets_retention
        with suppress(LogError):  # the write failed: the next round retries
            for group in list(self._groups.values()):
                await self._offset_store.remove(list(expired_offsets(group, self.offsets, now, retention)))
                if is_abandoned(group, self.offsets):
                    await self.delete(group.id)
            for group_id in list(self.consumers.all):
                subscribed = self.consumers.subscribed_topics(group_id)
                expired = self.offsets.expired(group_id, 0, now, retention)
                await self._offset_store.remove([key for key in expired if key.topic not in subscribed])
                if not self.offsets.of(group_id) and not self.offsets.has_pending(group_id):
                    await self.delete(group_id)
