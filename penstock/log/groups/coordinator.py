"""All groups and their offsets, as the handlers see them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.consumer.events import Answer, Remove
from penstock.log.groups.consumer.events import Heartbeat as ConsumerHeartbeat
from penstock.log.groups.consumer.formats import ConsumerKey, Replay
from penstock.log.groups.consumer.groups import ConsumerGroups, Sees
from penstock.log.groups.events import (
    NO_MEMBER,
    Commit,
    Delete,
    Heartbeat,
    Join,
    Joined,
    Kept,
    Leave,
    Snapshot,
    Sync,
    Synced,
)
from penstock.log.groups.expiry import expired_offsets, is_abandoned
from penstock.log.groups.formats import Committed, GroupKey, OffsetKey
from penstock.log.groups.group import Group, State
from penstock.log.groups.journal import Decision, Journal
from penstock.log.groups.keeper import OffsetKeeper
from penstock.log.groups.offsets import OffsetTable, TopicPartition
from penstock.log.groups.rules import GroupRules
from penstock.log.groups.runner import Runner

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer


class GroupCoordinator:
    """Everything consumer groups ask for. What was begun is carried out even if the client hangs up meanwhile."""

    def __init__(self, broker: Broker, rules: GroupRules | None = None) -> None:
        self.rules = rules or GroupRules()
        self._broker = broker
        self._journal = Journal(broker)
        self._keeper = OffsetKeeper(self._journal)
        self._groups: dict[str, Group] = {}
        self._runner = Runner(broker, self._journal)
        self.consumers = ConsumerGroups(broker, self._journal, self._runner, self.rules.consumer)
        self._sweeper: Timer | None = None

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by name, to look at."""
        return self._groups

    @property
    def offsets(self) -> OffsetTable:
        """Committed and pending offsets, to look at."""
        return self._keeper.table

    @property
    def runner(self) -> Runner:
        """Who carries out what groups decide, to look at."""
        return self._runner

    async def start(self) -> None:
        """Learn from the journal how things were."""
        now = self._broker.clock()
        for name, stored in self._replay().items():
            self._groups[name] = Group.restored(name, stored, now, self.rules.initial_delay)
        for name in self.offsets.groups():
            self._ensure(name)
        for group in self._groups.values():
            self._runner.arm(group)
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

    async def stop(self) -> None:
        """Send those who wait to ask again later, and let writes come to their end."""
        if self._sweeper:
            self._sweeper.cancel()
        self.consumers.stop()
        await self._runner.stop()

    async def join(self, group_id: str, event: Join) -> Joined:
        """Wait for the next generation of the group."""
        if not self.rules.min_session <= event.session_timeout <= self.rules.max_session:
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
        """Delete an empty consumer group, to make room for a classic one; say whether there is none of the name now."""
        group = self.consumers.all.get(group_id)
        if group is not None and not group.members:
            await self._carry_out(self.consumers.delete(group_id))
        return group_id not in self.consumers

    async def consumer_heartbeat(self, group_id: str, beat: ConsumerHeartbeat, sees: Sees) -> Answer:
        """Tell a consumer group of a heartbeat; wait until what follows from it is durable."""
        answer = await asyncio.shield(self._runner.spawn(self._consumer_heartbeat(group_id, beat, sees)))
        if isinstance(answer, LogError):
            raise answer
        return answer

    async def _consumer_heartbeat(self, group_id: str, beat: ConsumerHeartbeat, sees: Sees) -> Answer | LogError:
        classic = self._groups.get(group_id)
        if classic is None:
            return await self.consumers.heartbeat(group_id, beat, sees)
        if classic.state is not State.EMPTY or classic.reserved:
            return LogError(ErrorCode.group_id_not_found, f"group {group_id!r} has members of the classic protocol")
        # An empty classic group becomes a consumer group: one batch ends the one and begins the other.
        del self._groups[group_id]
        answer = await self.consumers.heartbeat(group_id, beat, sees, replaces=True)
        if group_id in self.consumers:
            self._runner.disarm(classic)
        else:
            self._groups.setdefault(group_id, classic)
        return answer

    async def remove_consumer(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member of a consumer group."""
        work = self.consumers.remove(group_id, Remove(member_id, instance_id))
        return await asyncio.shield(self._runner.spawn(work))

    def tell(self, group_id: str, event: Heartbeat | Leave) -> ErrorCode:
        """Tell a group something that it answers at once."""
        group = self._groups.get(group_id)
        return ErrorCode.unknown_member_id if group is None else self._runner.send(group, event).result().error

    def check_commit(self, group_id: str, event: Commit) -> ErrorCode:
        """Say whether offsets may be committed, and count it as a sign of life."""
        group = self._groups.get(group_id)
        if group is not None:
            return self._runner.send(group, event).result().error
        if group_id in self.consumers:
            return self.consumers.check_commit(group_id, event)
        if event.generation < 0:
            return ErrorCode.none
        if self.offsets.has_pending(group_id):  # a transaction has made it
            return ErrorCode.unknown_member_id
        by_epoch = event.by_epoch and not event.transactional
        return ErrorCode.group_id_not_found if by_epoch else ErrorCode.illegal_generation

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Say whether a member may ask for offsets; anyone may who does not claim to be one."""
        if group_id not in self.consumers or (member_id is None and epoch < 0):
            return ErrorCode.none
        return self.consumers.check_member(group_id, member_id or NO_MEMBER, epoch)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets that `check_commit` allowed."""
        await self._carry_out(self._keeper.commit(group_id, offsets))
        self._ensure(group_id)

    async def begin_offsets(
        self, producer_id: int, producer_epoch: int, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Write offsets as part of a transaction, pending until `end_offsets`. They are in the log before any wait."""
        await self._keeper.begin((producer_id, producer_epoch), group_id, offsets)

    def end_offsets(self, producer_id: int, committed: bool) -> None:
        """Take over or drop a producer's pending offsets; its marker is in the log."""
        for name in self.offsets.end(producer_id, committed):
            self._ensure(name)

    async def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> None:
        """Delete offsets of a group."""
        known = self.offsets.of(group_id)
        keys = [OffsetKey(group_id, *each) for each in partitions if each in known]
        await self._carry_out(self._keeper.remove(keys))

    async def forget_topic(self, topic: str) -> None:
        """Delete what all groups have committed for a topic that is no more."""
        keys = [OffsetKey(name, *each) for name in self.offsets.groups() for each in self.offsets.of(name)]
        await self._carry_out(self._keeper.remove([key for key in keys if key.topic == topic]))

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        if group_id in self.consumers:
            return await self._delete_consumer(group_id)
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        error = self._runner.send(group, Delete()).result().error
        if not error:
            # Tasks begin in the order they were made, so what the group wrote before stands before its end.
            await self._carry_out(self._remove(group))
        return error

    async def _delete_consumer(self, group_id: str) -> ErrorCode:
        if self.consumers.all[group_id].members:
            return ErrorCode.non_empty_group
        await self._carry_out(self._remove_consumer_group(group_id))
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
            self._runner.feed(group, Kept())
            raise
        self._groups.pop(group.id, None)
        self._runner.disarm(group)

    def _ensure(self, group_id: str) -> None:
        if group_id not in self.consumers:
            self._group(group_id)

    def _group(self, group_id: str) -> Group:
        if group_id not in self._groups:
            self._groups[group_id] = Group(group_id, self.rules.initial_delay, since=self._broker.clock())
        return self._groups[group_id]

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(self._runner.spawn(work))

    def _sweep_later(self) -> None:
        self._sweeper = self._broker.call_later(self.rules.sweep_every / 1000, self._begin_sweep)

    def _begin_sweep(self) -> None:
        self._runner.spawn(self._sweep())
        self._sweep_later()

    async def _sweep(self) -> None:
        now, retention = self._broker.clock(), self.rules.offsets_retention
        with suppress(LogError):  # the disk refuses: there is a next time
            for group in list(self._groups.values()):
                await self._keeper.remove(list(expired_offsets(group, self.offsets, now, retention)))
                if is_abandoned(group, self.offsets):
                    await self.delete(group.id)
            for group_id in list(self.consumers.all):
                subscribed = self.consumers.subscribed_topics(group_id)
                expired = self.offsets.expired(group_id, 0, now, retention)
                await self._keeper.remove([key for key in expired if key.topic not in subscribed])
                if not self.offsets.of(group_id) and not self.offsets.has_pending(group_id):
                    await self.delete(group_id)
