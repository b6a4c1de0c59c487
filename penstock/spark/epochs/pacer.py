"""How much an epoch may read: a backlog in big epochs, a live stream in small ones, a burst in bounded ones."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST = 250_000
LARGEST = 50_000_000
# Of a first epoch so small that it says little, the next one may still have so many rows.
LEAST = 100
GROWTH = 8
# How much slower a run's first epoch may be than the next ones: it starts workers and compiles.
COLD = 3
# Parts of the target: what an epoch should take, and the marks between which nothing is changed.
UTILISATION, LOW, HIGH = 0.7, 0.5, 0.9


@dataclass(frozen=True)
class Limits:
    """What bounds the epochs of a source.

    `epoch_rows` fixes the rows; else epochs should end in less than `seconds`, and the first one has `first` rows at
    most. Of a source that is more than `lag_rows` behind, the oldest rows are dropped.
    """

    epoch_rows: int | None = None
    seconds: float = 5.0
    first: int = FIRST
    lag_rows: int | None = None


USUAL = Limits()


@dataclass
class Pacer:
    """Adapts the number of rows to how long epochs take; pure: it is told rows and seconds.

    An epoch costs a fixed time and then so much per row, so its rows per second only grow with its size: what `rows *
    wanted / seconds` gives is never too much. So the limit follows that rate, up to `GROWTH` times as many rows, until
    epochs take `UTILISATION` of the target; it stays while they are between the marks, and one that takes longer
    makes the next smaller. An epoch that was small and quick says nothing against a limit that held before.
    """

    limits: Limits = USUAL
    _limit: int | None = None
    _long: tuple[int, float] = field(default=(0, 0.0))

    def rows(self) -> int:
        """Return how many rows the next epoch may read."""
        if self.limits.epoch_rows is not None:
            return self.limits.epoch_rows
        return self.limits.first if self._limit is None else self._limit

    def done(self, rows: int, seconds: float) -> None:
        """Learn how long an epoch of so many rows took."""
        if rows < 1:
            return
        used = seconds / self.limits.seconds
        fits = int(rows * UTILISATION / max(used, 1e-6))
        if used > HIGH and self._limit is None:
            self._limit = max(1, min(rows, fits * COLD))
        elif used > HIGH:
            self._limit = self._smaller(rows, seconds, fits)
        elif used >= LOW:
            self._limit = rows
        else:
            self._limit = min(max(min(fits, rows * GROWTH), self._limit or LEAST), LARGEST)

    def _smaller(self, rows: int, seconds: float, fits: int) -> int:
        """Return fewer rows, unless that was tried just now and did not help: then rows are not what takes long."""
        before, took = self._long
        if rows < 0.8 * before and seconds > 0.9 * took:
            self._long = (0, 0.0)
            return before
        self._long = (rows, seconds)
        return max(1, fits)
