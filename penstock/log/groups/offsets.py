"""Committed offsets of all groups, and pending offsets of open transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from penstock.log.groups.classic.group import Group, State
from penstock.log.groups.formats import Committed, OffsetKey
from penstock.log.groups.journal import Journal

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, Committed]


class OffsetTable:
    """Committed and pending offsets of all groups, updated the same way by live and by replayed changes."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[int, dict[OffsetKey, Committed]] = {}

    def of(self, group: str) -> Offsets:
        """Return the committed offsets of a group."""
        return self._committed.get(group, {})

    def groups(self) -> list[str]:
        """Return the groups with committed offsets."""
        return list(self._committed)

    @property
    def committed_count(self) -> int:
        """How many offsets are committed."""
        return sum(map(len, self._committed.values()))

    @property
    def pending_count(self) -> int:
        """How many offsets are pending in transactions."""
        return sum(map(len, self._pending.values()))

    def is_pending(self, key: OffsetKey) -> bool:
        """Return whether an open transaction has a pending commit of this offset."""
        return any(key in pending for pending in self._pending.values())

    def has_pending(self, group: str) -> bool:
        """Return whether an open transaction has pending offsets of this group."""
        return any(key.group == group for pending in self._pending.values() for key in pending)

    def all_keys(self) -> set[OffsetKey]:
        """Return the keys of all committed and pending offsets."""
        committed = {OffsetKey(group, *each) for group, known in self._committed.items() for each in known}
        return committed.union(*self._pending.values())

    def commit(self, key: OffsetKey, value: Committed) -> None:
        """Commit an offset, unless a newer one is committed."""
        known = self._committed.setdefault(key.group, {})
        current = known.get((key.topic, key.partition))
        if current is None or current.position <= value.position:
            known[key.topic, key.partition] = value

    def remove(self, key: OffsetKey, position: int) -> None:
        """Remove an offset that was deleted at a position, and pending ones written before it."""
        known, partition = self._committed.get(key.group, {}), (key.topic, key.partition)
        if partition in known and known[partition].position < position:
            del known[partition]
        if not known:
            self._committed.pop(key.group, None)
        for producer_id, pending in list(self._pending.items()):
            if key in pending and pending[key].position < position:
                self.forget(producer_id, [key])

    def begin(self, producer_id: int, key: OffsetKey, value: Committed) -> None:
        """Add a pending offset of a producer's transaction."""
        self._pending.setdefault(producer_id, {})[key] = value

    def forget(self, producer_id: int, keys: Iterable[OffsetKey]) -> None:
        """Remove pending offsets that could not be written."""
        pending = self._pending.get(producer_id, {})
        for key in keys:
            pending.pop(key, None)
        if not pending:
            self._pending.pop(producer_id, None)

    def end(self, producer_id: int, committed: bool) -> set[str]:
        """End a producer's transaction; return the groups whose offsets were committed."""
        pending = self._pending.pop(producer_id, {})
        if not committed:
            return set()
        for key, value in pending.items():
            self.commit(key, value)
        return {key.group for key in pending}

    def follow(self, producer_id: int, key: OffsetKey, value: Committed | None, position: int) -> None:
        """Apply a record of the journal."""
        if value is None:
            self.remove(key, position)
        elif producer_id < 0:
            self.commit(key, value)
        else:
            self.begin(producer_id, key, value)

    def expired(self, group: str, used_until: int, now: int, retention: int) -> Iterator[OffsetKey]:
        """Yield offsets that were neither committed nor in use for longer than the retention."""
        for (topic, partition), value in self.of(group).items():
            key = OffsetKey(group, topic, partition)
            due = max(value.timestamp, used_until) + retention if value.expires < 0 else value.expires
            if due <= now and not self.is_pending(key):
                yield key


class OffsetStore:
    """Writes offsets to the journal, and updates the table once they are durable."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._writing: list[dict[OffsetKey, Committed]] = []  # commits that are not durable yet
        self.table = OffsetTable()

    async def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets of a group."""
        changes = _changes(group, offsets)
        self._writing.append(changes)
        try:
            base = await self._journal.write(changes)
        finally:
            self._writing.remove(changes)
        for key, value in _placed(changes, base).items():
            self.table.commit(key, value)

    async def begin(self, producer: tuple[int, int], group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Write offsets as part of a producer's transaction. They are pending at once, before they are durable."""
        changes = _changes(group, offsets)
        for key, value in _placed(changes, self._journal.end).items():
            self.table.begin(producer[0], key, value)
        try:
            await self._journal.write(changes, producer)
        except Exception:  # rolls back after any failure, and raises it again
            self.table.forget(producer[0], changes)
            raise

    async def remove_topics(self, topics: Collection[str]) -> None:
        """Delete all offsets of some topics, also those that are being written."""
        keys = self.table.all_keys().union(*self._writing)
        await self.remove([key for key in keys if key.topic in topics])

    async def remove(self, keys: Collection[OffsetKey]) -> None:
        """Delete offsets."""
        if not keys:
            return
        base = await self._journal.write(dict.fromkeys(keys))
        for at, key in enumerate(keys):
            self.table.remove(key, base + at)


def _changes(group: str, offsets: Mapping[TopicPartition, Committed]) -> dict[OffsetKey, Committed]:
    return {OffsetKey(group, *partition): value for partition, value in offsets.items()}


def _placed(changes: dict[OffsetKey, Committed], base: int) -> dict[OffsetKey, Committed]:
    return {key: value._replace(position=base + at) for at, (key, value) in enumerate(changes.items())}


def expired_offsets(group: Group, offsets: OffsetTable, now: int, retention: int) -> Iterator[OffsetKey]:
    """Yield the expired offsets: of a group that has been empty, or of topics without subscription, for so long."""
    if group.state is State.EMPTY:
        used_until = group.since if group.protocol_type else 0
        yield from offsets.expired(group.id, used_until, now, retention)
    elif group.state is State.STABLE and (topics := group.subscribed_topics()) is not None:
        expired = offsets.expired(group.id, 0, now, retention)
        yield from (key for key in expired if key.topic not in topics)


def is_abandoned(group: Group, offsets: OffsetTable) -> bool:
    """Return whether a group has no members and no offsets."""
    unused = group.state is State.EMPTY and not group.reserved
    return unused and not offsets.of(group.id) and not offsets.has_pending(group.id)
