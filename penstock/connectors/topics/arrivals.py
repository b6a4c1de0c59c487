"""When records arrived: a sample of their timestamps, from which the driver measures latencies at the commit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Of each batch so many records are looked at, evenly spread: counts stay right, percentiles are within one of these.
PER_BATCH = 200
# So many groups of records with neighbouring times are kept of one task.
SHARES = 100


class Arrivals:
    """Timestamps of the records that were read since the last call of `take`."""

    def __init__(self) -> None:
        self._times: list[NDArray[np.int64]] = []
        self._weights: list[NDArray[np.float64]] = []

    def add(self, timestamps: pa.Array) -> None:
        """Add the timestamps of a batch; those of records without one are left out."""
        step = max(1, len(timestamps) // PER_BATCH)
        chosen = timestamps.take(pa.array(np.arange(0, len(timestamps), step))).drop_null()
        if len(chosen):
            millis = chosen.cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
            self._times.append(millis)
            self._weights.append(np.full(len(millis), len(timestamps) / len(millis)))

    def take(self) -> dict[int, int]:
        """Return milliseconds since 1970 with how many records came then; of neighbours the oldest stands for all."""
        if not self._times:
            return {}
        times, weights = np.concatenate(self._times), np.concatenate(self._weights)
        self._times, self._weights = [], []
        order = np.argsort(times, kind="stable")
        times, weights = times[order], weights[order]
        found: dict[int, int] = {}
        for group, weight in zip(np.array_split(times, SHARES), np.array_split(weights, SHARES), strict=True):
            if len(group):
                found[int(group[0])] = found.get(int(group[0]), 0) + round(float(weight.sum()))
        return found
