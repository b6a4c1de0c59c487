"""Deduplication of one bucket of keys: a row is a duplicate if a kept row of its key is at most `within` away in time.

Rows are judged in the order in which they come, and only against rows that were kept. Most rows have no neighbour of
their key that close, or one: rounds over whole columns decide those. What is left are long clusters of close rows;
these are judged one after the other. The state holds the keys and times of kept rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import CheckpointDamaged
from penstock.keyed.columns import key_codes

VERSION = b"\x01"
KEPT_AT = "kept_at"
# Each round keeps one row of every cluster; longer clusters are cheaper one row after the other.
_ROUNDS = 3
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Turn(Protocol):
    """What a bucket's turn gives, and where the state for the next one is left."""

    rows: pa.Table
    state: bytes | None
    watermark_us: int
    wake_us: int | None


@dataclass(frozen=True)
class Duplicates:
    """One turn of a bucket; `time` is the column of event times."""

    keys: tuple[str, ...]
    within_us: int
    time: str

    def __call__(self, turn: Turn) -> Iterator[pa.Table]:
        """Return the rows that are no duplicates, in their order."""
        fresh = self._entries(turn.rows)
        before = fresh.slice(0, 0) if turn.state is None else loaded(turn.state).cast(fresh.schema)
        both = pa.concat_tables([before, fresh]).combine_chunks()
        times = both.column(KEPT_AT).to_numpy()
        kept = np.ones(both.num_rows, bool)
        if fresh.num_rows:
            codes = key_codes([both.column(number) for number in range(len(self.keys))])
            kept = kept_rows(codes, times, before.num_rows, self.within_us)
            yield turn.rows.filter(pa.array(kept[before.num_rows :]))
        # A row that comes later is not before the watermark; what is further away from it cannot be its duplicate.
        needed = kept & (times >= turn.watermark_us - self.within_us)
        turn.state = dumped(both.filter(pa.array(needed))) if needed.any() else None
        turn.wake_us = int(times[needed].max()) + self.within_us + 1 if needed.any() else None

    def _entries(self, rows: pa.Table) -> pa.Table:
        """Return the keys and times of rows; a key may have any name, so columns are known by their places."""
        columns = [rows.column(name) for name in self.keys]
        names = [f"k{number}" for number in range(len(columns))]
        return pa.table([*columns, rows.column(self.time).cast(pa.int64())], names=[*names, KEPT_AT])


def kept_rows(codes: Numbers, times: Numbers, known: int, within: int) -> Flags:
    """Say which rows are kept; the first `known` were kept before.

    >>> kept_rows(np.zeros(4, int), np.array([0, 10, 30, 11]), 1, 10).tolist()
    [True, False, True, True]
    """
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    kept = order < known
    left = np.flatnonzero(~kept & ~_near(kept, codes, times, within)) if known else np.arange(len(order))
    for _ in range(_ROUNDS):
        if not len(left):
            break
        begins, cluster = _clusters(codes[left], times[left], within)
        firsts = np.minimum.reduceat(order[left], begins)
        chosen = left[order[left] == firsts[cluster]]
        kept[chosen] = True
        left = left[np.abs(times[left] - times[chosen][cluster]) > within]
    if len(left):
        begins, _ = _clusters(codes[left], times[left], within)
        for rows in np.split(left, begins[1:]):
            kept[rows[_one_by_one(order[rows], times[rows], within)]] = True
    result = np.empty(len(order), bool)
    result[order] = kept
    return result


def _near(kept: Flags, codes: Numbers, times: Numbers, within: int) -> Flags:
    """Say of each row, in the order of keys and times, whether the kept row before or after it is that close."""
    places = np.arange(len(kept))
    before = np.maximum.accumulate(np.where(kept, places, -1))
    after = np.minimum.accumulate(np.where(kept, places, len(kept))[::-1])[::-1]
    near = np.zeros(len(kept), bool)
    for other, there in ((before, before >= 0), (after, after < len(kept))):
        at = np.where(there, other, 0)
        near |= there & (codes[at] == codes) & (np.abs(times - times[at]) <= within)
    return near


def _clusters(codes: Numbers, times: Numbers, within: int) -> tuple[Numbers, Numbers]:
    """Return where clusters of close rows of a key begin, and the cluster of each row."""
    apart = np.r_[True, (codes[1:] != codes[:-1]) | (times[1:] - times[:-1] > within)]
    return np.flatnonzero(apart), np.cumsum(apart) - 1


def _one_by_one(order: Numbers, times: Numbers, within: int) -> list[int]:
    """Judge the rows of one cluster, which are sorted by time, in the order in which they came."""
    lows = np.searchsorted(times, times - within, side="left").tolist()
    highs = np.searchsorted(times, times + within, side="right").tolist()
    duplicate = bytearray(len(times))
    kept = []
    for row in np.argsort(order).tolist():
        if not duplicate[row]:
            kept.append(row)
            low, high = lows[row], highs[row]
            duplicate[low:high] = b"\x01" * (high - low)
    return kept


def dumped(kept: pa.Table) -> bytes:
    """Return a state as bytes: the version of its layout, then an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kept.schema) as writer:
        writer.write_table(kept)
    data: bytes = sink.getvalue().to_pybytes()
    return VERSION + data


def loaded(state: bytes) -> pa.Table:
    """Return the keys and times of kept rows."""
    if state[:1] != VERSION:
        message = f"state begins with {state[:1]!r}, which this Penstock cannot read"
        raise CheckpointDamaged(message, hint="run the version of Penstock that wrote it")
    with pa.ipc.open_stream(pa.py_buffer(state).slice(len(VERSION))) as reader:
        return reader.read_all()
