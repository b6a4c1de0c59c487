"""All groups of the consumer protocol: runs their state machines, stores the changes, and schedules their timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import NO_MEMBER, Commit
from penstock.log.groups.consumer.formats import ConsumerKey, Replay, changes, deletion
from penstock.log.groups.consumer.state import (
    Answer,
    ConsumerGroup,
    ConsumerSettings,
    Event,
    Heartbeat,
    Image,
    MemberState,
    Remove,
    Tick,
    TopicInfo,
)
from penstock.log.groups.consumer.state_machine import check_epoch, handle
from penstock.log.groups.formats import GroupKey
from penstock.log.linear_regex import LinearRegex

if TYPE_CHECKING:
    from penstock.log.broker import Broker, Timer
    from penstock.log.groups.classic.runner import Runner
    from penstock.log.groups.journal import Journal

CanDescribe = Callable[[str], bool]
_RETRY_SECONDS = 1.0


class ConsumerGroups:
    """Groups by name. `settings` returns the settings of a group.

    A coroutine of this class does not await before its change is appended, so the changes of a group are in the log
    in the order in which they were made; the reply waits until they are durable.
    """

    def __init__(self, broker: Broker, journal: Journal, runner: Runner, settings: ConsumerSettings) -> None:
        self.settings: Callable[[str], ConsumerSettings] = lambda _: settings
        self._broker = broker
        self._journal = journal
        self._runner = runner
        self._groups: dict[str, ConsumerGroup] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._topics: tuple[int, Mapping[str, TopicInfo]] = -1, {}
        self._resolved: dict[str, dict[str, tuple[int, frozenset[str]]]] = {}

    @property
    def all(self) -> Mapping[str, ConsumerGroup]:
        """All groups by name, read-only."""
        return self._groups

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def start(self, replay: Replay) -> None:
        """Restore the stored groups; their members have one session timeout to send a heartbeat."""
        for group in replay.groups():
            self._groups[group.id] = self._restored(group, self._broker.clock())
            self._schedule(group.id)

    def _restored(self, group: ConsumerGroup, now: int) -> ConsumerGroup:
        session = self.settings(group.id).session_timeout
        members = {
            id: replace(
                each,
                expires=now + session,
                revoke_by=now + each.rebalance_timeout if each.state is MemberState.UNREVOKED else None,
            )
            for id, each in group.members.items()
        }
        return replace(group, members=members)

    def stop(self) -> None:
        """Cancel all timers."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def heartbeat(
        self, group_id: str, beat: Heartbeat, can_describe: CanDescribe, *, replaces: bool = False
    ) -> Answer | LogError:
        """Apply a heartbeat; a group is created by its first member.

        `can_describe` authorizes topics, `replaces` means that an empty classic group of this name is replaced.
        """
        try:
            group = self._groups.get(group_id)
            if group is None and beat.epoch != 0:
                raise LogError(ErrorCode.group_id_not_found, f"there is no consumer group {group_id!r}")
            answer = await self._handle(group or ConsumerGroup(group_id), beat, can_describe, replaces=replaces)
        except LogError as error:
            return error  # returned, not raised: if the client has disconnected, nobody awaits the task
        assert answer is not None
        return answer

    async def remove(self, group_id: str, event: Remove) -> ErrorCode:
        """Remove a member on request of an administrator."""
        try:
            await self._handle(self._groups[group_id], event)
        except KeyError:
            return ErrorCode.unknown_member_id
        except LogError as error:
            return error.code
        return ErrorCode.none

    async def delete(self, group_id: str) -> None:
        """Delete a group without members."""
        group = self._groups.pop(group_id)
        self._forget(group_id)
        try:
            await self._journal.write(deletion(group))
        except LogError:
            self._groups.setdefault(group_id, group)
            raise

    def check_commit(self, group_id: str, event: Commit) -> ErrorCode:
        """Return the error code of a commit by this member, or `none`."""
        group = self._groups[group_id]
        if event.generation < 0 and not group.members:
            return ErrorCode.none
        anonymous = event.generation < 0 and event.member_id == NO_MEMBER and event.instance_id is None
        if event.transactional and anonymous:
            return ErrorCode.none
        error = self.check_member(group_id, event.member_id, event.generation)
        if event.transactional and error is ErrorCode.stale_member_epoch:
            return ErrorCode.illegal_generation
        if not error and not event.transactional and not event.by_epoch:
            return ErrorCode.unsupported_version
        return error

    def check_member(self, group_id: str, member_id: str, epoch: int) -> ErrorCode:
        """Return the error code of a member in this epoch, or `none`."""
        try:
            check_epoch(self._groups[group_id], member_id, epoch)
        except LogError as error:
            return error.code
        return ErrorCode.none

    def subscribed_topics(self, group_id: str) -> frozenset[str]:
        """Return the topics that the members of a group subscribe to."""
        group = self._groups[group_id]
        known = {regex: topics for regex, (_, topics) in self._resolved.get(group_id, {}).items()}
        return group.subscribed_topics(Image({}, known))

    async def _handle(
        self, group: ConsumerGroup, event: Event, can_describe: CanDescribe | None = None, *, replaces: bool = False
    ) -> Answer | None:
        image = self._image(group, event.regex if isinstance(event, Heartbeat) else None, can_describe)
        outcome = handle(group, event, self._broker.clock(), image, self.settings(group.id))
        before = self._groups.get(group.id)
        records: dict[GroupKey | ConsumerKey, bytes | None] = {GroupKey(group.id): None} if replaces else {}
        records.update(changes(before, outcome.group).items())
        await self._store(before, outcome.group, records)
        return outcome.answer

    async def _store(
        self, before: ConsumerGroup | None, after: ConsumerGroup, records: dict[GroupKey | ConsumerKey, bytes | None]
    ) -> None:
        self._groups[after.id] = after
        self._schedule(after.id)
        if not records:
            return
        try:
            await self._journal.write(records)
        except LogError:
            # The write failed: roll the group back, unless it has changed again in the meantime.
            if self._groups.get(after.id) is after and before is not None:
                self._groups[after.id] = before
            elif self._groups.get(after.id) is after:
                del self._groups[after.id]
            raise

    def _image(self, group: ConsumerGroup, regex: str | None, can_describe: CanDescribe | None) -> Image:
        topics = self._broker.store.topics
        if self._topics[0] != topics.revision:
            infos = {name: TopicInfo(topic.id, topic.partitions) for name, topic in topics.items()}
            self._topics = topics.revision, infos
        wanted = {each.regex for each in group.members.values() if each.regex} | ({regex} if regex else set())
        known = self._resolved.get(group.id, {})
        resolved = {each: self._resolve(each, known.get(each), can_describe) for each in wanted if each is not None}
        self._resolved[group.id] = {each: (topics.revision, names) for each, names in resolved.items()}
        if not resolved:
            del self._resolved[group.id]
        return Image(self._topics[1], resolved, topics.revision)

    def _resolve(
        self, regex: str, known: tuple[int, frozenset[str]] | None, can_describe: CanDescribe | None
    ) -> frozenset[str]:
        topics = self._broker.store.topics
        if known is not None and (can_describe is None or known[0] == topics.revision):
            return known[1]
        pattern = LinearRegex(regex)
        names = (name for name, topic in topics.items() if not topic.internal and pattern.matches(name))
        return frozenset(name for name in names if can_describe is None or can_describe(name))

    def _schedule(self, group_id: str) -> None:
        deadline = self._groups[group_id].deadline()
        planned, _ = self._timers.get(group_id, (None, None))
        if deadline is not None and (planned is None or deadline < planned):
            self._set_timer(group_id, deadline, max(deadline - self._broker.clock() + 1, 1) / 1000)

    def _set_timer(self, group_id: str, deadline: int, seconds: float) -> None:
        _, timer = self._timers.pop(group_id, (None, None))
        if timer is not None:
            timer.cancel()
        self._timers[group_id] = deadline, self._broker.call_later(seconds, partial(self._on_timer, group_id))

    def _on_timer(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        if group_id in self._groups:
            self._runner.spawn(self._expire(group_id))

    async def _expire(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        try:
            await self._handle(group, Tick())
        except LogError:  # the write failed: the next round retries
            self._set_timer(group_id, 0, _RETRY_SECONDS)

    def _forget(self, group_id: str) -> None:
        self._resolved.pop(group_id, None)
        _, timer = self._timers.pop(group_id, (None, None))
        if timer is not None:
            timer.cancel()
