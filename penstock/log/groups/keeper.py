from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.log.groups.formats import Committed, OffsetKey
from penstock.log.groups.journal import Journal
from penstock.log.groups.offsets import OffsetTable, TopicPartition


class OffsetKeeper:
    """Writes offsets to the journal, and shows them once they are there to stay."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.table = OffsetTable()

    async def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets of a group."""
        changes = _changes(group, offsets)
        base = await self._journal.write(changes)
        for key, value in _placed(changes, base).items():
            self.table.commit(key, value)

    async def begin(self, producer: tuple[int, int], group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Write offsets as part of a producer's transaction. They are pending from now on, written or not."""
        changes = _changes(group, offsets)
        for key, value in _placed(changes, self._journal.end).items():
            self.table.begin(producer[0], key, value)
        try:
            await self._journal.write(changes, producer)
        except Exception:
            self.table.forget(producer[0], changes)
            raise

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
