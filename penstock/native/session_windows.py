"""Session windows: they end after a gap, or at their maximum length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.native.panes import Invocation, Panes, fits, is_over, run
from penstock.native.steps import TIME, quote
from penstock.values.state_tables import Numbers, StateTable
from penstock.windows import END_US, Window

AT, GROUP, SESSION = (f"__penstock_{name}" for name in ("at", "group", "session"))
_STARTS, _ENDS, _IS_OVER = (f"__penstock_{name}" for name in ("starts", "ends", "is_over"))


@dataclass(frozen=True)
class SessionWindows:
    """One call for a bucket: sessions out that are over, however their rows were ordered.

    The state holds a partial for every time at which an open session has rows. All rows before the watermark are
    there, so the cuts of a session that has ended are final, and what is left starts a session.
    """

    panes: Panes
    window: Window
    is_processing_time: bool = False

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Take the rows and give the sessions that are over."""
        before = call.state[0].rows if call.state is not None else self.panes.empty(AT)
        now = END_US if is_over(call) else call.now_us if self.is_processing_time else call.watermark_us
        at = str(call.now_us) if self.is_processing_time else f"epoch_us({TIME})"
        fresh = f"SELECT {self.panes.listed}, ({at})::BIGINT AS {AT} FROM rows"
        units = run(self._sorted(fresh), rows=call.rows, units=before)
        if not units.num_rows:
            return
        sessions, starts, ends, over_at = self._sessions(units)
        over = over_at <= now
        if over.any():
            numbered = units.append_column(SESSION, pa.array(sessions))
            yield run(self._closed(), units=numbered, windows=_table(starts, ends, over))
        open_units = ~over[sessions]
        self._store(call, units.filter(pa.array(open_units)), over_at[sessions][open_units])

    def _store(self, call: Invocation, left: pa.Table, over_at: Numbers) -> None:
        times = (None, over_at) if self.is_processing_time else (over_at, None)
        call.state = (StateTable(fits(left, self.panes.empty(AT)), *times),) if left.num_rows else None

    def _sorted(self, fresh: str) -> str:
        keys = ", ".join(map(quote, self.panes.keys))
        group = f"dense_rank() OVER (ORDER BY {keys})" if keys else "1"
        merged = self.panes.together(fresh, "units", AT)
        return f"SELECT *, {group} AS {GROUP} FROM ({merged}) ORDER BY {GROUP}, {AT}"

    def _sessions(self, units: pa.Table) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return the session of each unit, where each begins and ends, and the watermark at which it is over.

        A row that is exactly a gap after the last one belongs to the session, and is not late at that watermark.
        """
        times, groups = units.column(AT).to_numpy(), units.column(GROUP).to_numpy()
        apart = (groups[1:] != groups[:-1]) | (times[1:] - times[:-1] > self.window.size_us)
        firsts = np.flatnonzero(np.r_[True, apart])
        if self.window.max_us is not None:
            firsts = cut(times, firsts, self.window.max_us)
        lasts = np.r_[firsts[1:], len(times)] - 1
        ends = times[lasts] + self.window.size_us
        over_at = ends + 1
        if self.window.max_us is not None:
            longest = times[firsts] + self.window.max_us
            ends, over_at = np.minimum(ends, longest), np.minimum(over_at, longest)
        sessions = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)
        return sessions, times[firsts], ends, over_at

    def _closed(self) -> str:
        over = f"SELECT units.* FROM units JOIN windows ON units.{SESSION} = windows.{SESSION} WHERE {_IS_OVER}"
        bounds = f"make_timestamptz({_STARTS}) AS window_start, make_timestamptz({_ENDS}) AS window_end"
        bounds += f", make_timestamptz({_ENDS} - 1) AS {TIME}"
        merged = self.panes.merged(f"({over})", SESSION, order=AT)
        return f"SELECT m.*, {bounds} FROM ({merged}) m JOIN windows USING ({SESSION})"


def cut(times: Numbers, firsts: Numbers, longest: int) -> Numbers:
    """Cut what is too long: each session ends before the first row that is `longest` or more after its first one.

    >>> cut(np.array([0, 4, 9, 12, 30]), np.array([0, 4]), 10).tolist()
    [0, 3, 4]
    """
    ends = np.r_[firsts[1:], len(times)]
    found: list[int] = []
    too_long = times[ends - 1] - times[firsts] >= longest
    for first, end in zip(firsts[too_long], ends[too_long], strict=True):
        at = int(first)
        while times[end - 1] - times[at] >= longest:
            at += int(np.searchsorted(times[at:end], times[at] + longest))
            found.append(at)
    return np.sort(np.r_[firsts, np.array(found, dtype=np.int64)])


def _table(starts: Numbers, ends: Numbers, over: npt.NDArray[np.bool_]) -> pa.Table:
    return pa.table({SESSION: np.arange(len(starts)), _STARTS: starts, _ENDS: ends, _IS_OVER: over})
