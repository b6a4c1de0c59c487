"""Deduplication of one bucket of keys: a row is a duplicate if a retained row of its key is at most `within` away.

Rows are decided in the order of arrival, and only against retained rows. Most rows have no neighbour of their key that
close, or one: rounds over whole columns decide those. What remains are long clusters of close rows, which are decided
one by one. The state has the keys and times of retained rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.keyed.arrow_rows import key_codes
from penstock.values.state_tables import StateTable

KEPT_AT = "kept_at"
# Each round retains one row of every cluster; long clusters are cheaper row by row.
_ROUNDS = 3
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Invocation(Protocol):
    """The rows of a bucket in one epoch and the state of their keys; the operator sets the new state."""

    rows: pa.Table
    state: tuple[StateTable, ...] | None
    watermark_us: int


@dataclass(frozen=True)
class Deduplicator:
    """The operator on one bucket; `time` is the column of event times."""

    keys: tuple[str, ...]
    within_us: int
    time: str

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Yield the rows that are not duplicates, in their order."""
        fresh = self._entries(call.rows)
        before = fresh.slice(0, 0) if call.state is None else call.state[0].rows.cast(fresh.schema)
        both = pa.concat_tables([before, fresh]).combine_chunks()
        times = both.column(KEPT_AT).to_numpy()
        retained = np.ones(both.num_rows, bool)
        if fresh.num_rows:
            codes = key_codes([both.column(number) for number in range(len(self.keys))])
            retained = retained_rows(codes, times, before.num_rows, self.within_us)
            yield call.rows.filter(pa.array(retained[before.num_rows :]))
        # Later rows are not older than the watermark, so retained rows further away from it are no longer needed.
        needed = retained & (times >= call.watermark_us - self.within_us)
        expires = times[needed] + (self.within_us + 1)
        call.state = (StateTable(both.filter(pa.array(needed)), expires=expires),) if needed.any() else None

    def _entries(self, rows: pa.Table) -> pa.Table:
        """Return the keys and times of rows; key columns get generated names, since a key may have any name."""
        columns = [rows.column(name) for name in self.keys]
        return pa.table([*columns, rows.column(self.time).cast(pa.int64())], names=[*self.state_keys, KEPT_AT])

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The key columns of the state."""
        return tuple(f"k{number}" for number in range(len(self.keys)))


def retained_rows(codes: Numbers, times: Numbers, known: int, within: int) -> Flags:
    """Say which rows are retained; the first `known` rows are from the state.

    >>> retained_rows(np.zeros(4, int), np.array([0, 10, 30, 11]), 1, 10).tolist()
    [True, False, True, True]
    """
    # The only row of its key has nothing to be compared with: of ids that are rarely sent twice, that is most rows.
    compared = np.flatnonzero(np.bincount(codes)[codes] > 1)
    retained = np.ones(len(codes), bool)
    first = int(np.searchsorted(compared, known))
    retained[compared] = _decided(codes[compared], times[compared], first, within)
    return retained


def _decided(codes: Numbers, times: Numbers, known: int, within: int) -> Flags:
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    retained = order < known
    left = np.flatnonzero(~retained & ~_near(retained, codes, times, within)) if known else np.arange(len(order))
    for _ in range(_ROUNDS):
        if not len(left):
            break
        starts, cluster = _clusters(codes[left], times[left], within)
        firsts = np.minimum.reduceat(order[left], starts)
        chosen = left[order[left] == firsts[cluster]]
        retained[chosen] = True
        left = left[np.abs(times[left] - times[chosen][cluster]) > within]
    if len(left):
        starts, _ = _clusters(codes[left], times[left], within)
        for rows in np.split(left, starts[1:]):
            retained[rows[_one_by_one(order[rows], times[rows], within)]] = True
    result = np.empty(len(order), bool)
    result[order] = retained
    return result


def _near(retained: Flags, codes: Numbers, times: Numbers, within: int) -> Flags:
    """Say for each row, ordered by key and time, whether the retained row before or after it is that close."""
    positions = np.arange(len(retained))
    before = np.maximum.accumulate(np.where(retained, positions, -1))
    after = np.minimum.accumulate(np.where(retained, positions, len(retained))[::-1])[::-1]
    near = np.zeros(len(retained), bool)
    for other, exists in ((before, before >= 0), (after, after < len(retained))):
        at = np.where(exists, other, 0)
        near |= exists & (codes[at] == codes) & (np.abs(times - times[at]) <= within)
    return near


def _clusters(codes: Numbers, times: Numbers, within: int) -> tuple[Numbers, Numbers]:
    """Return the start of each cluster of close rows of a key, and the cluster of each row."""
    apart = np.r_[True, (codes[1:] != codes[:-1]) | (times[1:] - times[:-1] > within)]
    return np.flatnonzero(apart), np.cumsum(apart) - 1


def _one_by_one(order: Numbers, times: Numbers, within: int) -> list[int]:
    """Decide the rows of one cluster, which are sorted by time, in the order of arrival."""
    lows = np.searchsorted(times, times - within, side="left").tolist()
    highs = np.searchsorted(times, times + within, side="right").tolist()
    duplicate = bytearray(len(times))
    retained = []
    for row in np.argsort(order).tolist():
        if not duplicate[row]:
            retained.append(row)
            low, high = lows[row], highs[row]
            duplicate[low:high] = b"\x01" * (high - low)
    return retained
