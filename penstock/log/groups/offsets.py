"""How far each group has come, as the log says: committed, and still undecided inside transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.log.groups.formats import Committed, OffsetKey

TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, Committed]


class OffsetTable:
    """Committed and pending offsets of all groups. It follows the log: live and replayed changes go the same way."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[int, dict[OffsetKey, Committed]] = {}

    def of(self, group: str) -> Offsets:
        """Return what a group has committed."""
        return self._committed.get(group, {})

    def groups(self) -> list[str]:
        """Return the groups that have committed something."""
        return list(self._committed)

    @property
    def committed_count(self) -> int:
        """How many offsets are committed."""
        return sum(map(len, self._committed.values()))

    @property
    def pending_count(self) -> int:
        """How many offsets wait for the end of a transaction."""
        return sum(map(len, self._pending.values()))

    def is_pending(self, key: OffsetKey) -> bool:
        """Say whether a transaction that is not decided yet would move this offset."""
        return any(key in pending for pending in self._pending.values())

    def has_pending(self, group: str) -> bool:
        """Say whether a transaction that is not decided yet has offsets of this group."""
        return any(key.group == group for pending in self._pending.values() for key in pending)

    def commit(self, key: OffsetKey, value: Committed) -> None:
        """Take an offset over, unless the log has a younger one."""
        known = self._committed.setdefault(key.group, {})
        current = known.get((key.topic, key.partition))
        if current is None or current.position <= value.position:
            known[key.topic, key.partition] = value

    def remove(self, key: OffsetKey, position: int) -> None:
        """Forget an offset that the log has deleted at a position, and what undecided transactions wrote before it."""
        known, place = self._committed.get(key.group, {}), (key.topic, key.partition)
        if place in known and known[place].position < position:
            del known[place]
        if not known:
            self._committed.pop(key.group, None)
        for producer_id, pending in list(self._pending.items()):
            if key in pending and pending[key].position < position:
                self.forget(producer_id, [key])

    def begin(self, producer_id: int, key: OffsetKey, value: Committed) -> None:
        """Keep an offset aside until the producer's transaction is decided."""
        self._pending.setdefault(producer_id, {})[key] = value

    def forget(self, producer_id: int, keys: Iterable[OffsetKey]) -> None:
        """Let go of pending offsets that could not be written."""
        pending = self._pending.get(producer_id, {})
        for key in keys:
            pending.pop(key, None)
        if not pending:
            self._pending.pop(producer_id, None)

    def end(self, producer_id: int, committed: bool) -> set[str]:
        """Decide a producer's transaction; return the groups that it moved."""
        pending = self._pending.pop(producer_id, {})
        if not committed:
            return set()
        for key, value in pending.items():
            self.commit(key, value)
        return {key.group for key in pending}

    def follow(self, producer_id: int, key: OffsetKey, value: Committed | None, position: int) -> None:
        """Repeat what the log says of an offset at a position."""
        if value is None:
            self.remove(key, position)
        elif producer_id < 0:
            self.commit(key, value)
        else:
            self.begin(producer_id, key, value)

    def expired(self, group: str, used_until: int, now: int, retention: int) -> Iterator[OffsetKey]:
        """Yield what was neither committed nor in use for longer than the retention."""
        for (topic, partition), value in self.of(group).items():
            key = OffsetKey(group, topic, partition)
            due = max(value.timestamp, used_until) + retention if value.expires < 0 else value.expires
            if due <= now and not self.is_pending(key):
                yield key
