"""Time windows whose results are emitted early, before they are final, each at most so often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.native.panes import Invocation, Panes, fits, is_over, run
from penstock.native.steps import PANE, TIME, quote
from penstock.values.state_tables import Numbers, StateTable
from penstock.windows import END_US, FIRST_US, Window

K, SHOWN, FRESH, END, DUE, LATE = (f"__penstock_{name}" for name in ("k", "shown", "fresh", "end", "due", "late"))
# Whole panes are added to every time, so that dividing rounds down before 1970 too.
_LONG_AGO_US = 2**61
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class EarlyWindows:
    """One call for a bucket: a window that changed is emitted if it was not for `every_us`, or is over.

    With `every_us` None windows are emitted once, when they are over. With `is_processing_time` the time of
    a row is that of the call. `late` is the time up to which windows had ended before these rows came: of windows that
    overlap, a row counts only in the others. The state holds the open panes, and when each open window was emitted.
    """

    panes: Panes
    window: Window
    every_us: int | None
    is_processing_time: bool = False
    late: str | None = None

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Take the rows and emit what is due."""
        panes, windows = self._before(call)
        if not (call.rows.num_rows or windows.num_rows):
            return
        now = END_US if is_over(call) else call.now_us if self.is_processing_time else call.watermark_us
        fresh = run(self._assigned(call), rows=call.rows)
        windows = run(self._touched(call, now), fresh=fresh, windows=windows)
        rows = f"SELECT * EXCLUDE ({LATE}) FROM fresh"
        panes = run(self.panes.together(rows, "panes", PANE), fresh=fresh, panes=panes)
        if pc.any(windows.column(DUE)).as_py():
            yield run(self._shown(), panes=panes, windows=windows)
        self._store(call, now, panes, windows)

    def _before(self, call: Invocation) -> list[pa.Table]:
        if call.state is not None:
            return [one.rows for one in call.state]
        return [self.panes.empty(PANE), self.panes.key_table(K, SHOWN, FRESH)]

    def _store(self, call: Invocation, now: int, panes: pa.Table, windows: pa.Table) -> None:
        shown = f"CASE WHEN {DUE} THEN {call.now_us} ELSE {SHOWN} END AS {SHOWN}"
        keys = ", ".join([*map(quote, self.panes.keys), ""])
        fresh = f"CASE WHEN {DUE} THEN 0 ELSE {FRESH} END AS {FRESH}"
        open_windows = run(
            f"SELECT {keys}{K}, {shown}, {fresh}, {END} FROM windows WHERE {END} > {now}", windows=windows
        )
        left = run(f"SELECT * FROM panes WHERE {self._end(self._newest)} > {now}", panes=panes)
        call.state = None
        if not open_windows.num_rows:
            return
        ends, shown_again = open_windows.column(END).to_numpy(), self._shown_again(open_windows)
        event, processing = (None, np.minimum(ends, shown_again)) if self.is_processing_time else (ends, shown_again)
        windows = fits(open_windows, self.panes.key_table(K, SHOWN, FRESH))
        call.state = StateTable(fits(left, self.panes.empty(PANE))), StateTable(windows, event, processing)

    def _shown_again(self, windows: pa.Table) -> Numbers:
        """Return when each window that changed since may be emitted again."""
        if self.every_us is None:
            return np.full(windows.num_rows, _NEVER)
        fresh = windows.column(FRESH).to_numpy() == 1
        shown: Numbers = pc.fill_null(windows.column(SHOWN).cast(pa.int64()), 0).to_numpy()
        return np.where(fresh, shown + self.every_us, _NEVER)

    @property
    def _pane(self) -> int:
        return gcd(self.window.size_us, self.window.slide_us)

    @property
    def _newest(self) -> str:
        """The newest window that a pane belongs to."""
        return f"floor({PANE} / {self.window.slide_us // self._pane})::BIGINT"

    def _end(self, number: str) -> str:
        return f"({number} * {self.window.slide_us} + {self.window.offset_us + self.window.size_us})"

    def _assigned(self, call: Invocation) -> str:
        at = str(call.now_us) if self.is_processing_time else f"epoch_us({TIME})"
        long_ago = _LONG_AGO_US // self._pane
        pane = f"({at} + {long_ago * self._pane - self.window.offset_us}) // {self._pane} - {long_ago}"
        late = self.late or f"{FIRST_US}"
        return f"SELECT {self.panes.listed}, ({pane})::BIGINT AS {PANE}, ({late})::BIGINT AS {LATE} FROM rows"

    def _touched(self, call: Invocation, now: int) -> str:
        """Put the windows that rows changed together with those that are open, and say which are due."""
        keys = ", ".join([*map(quote, self.panes.keys), ""])
        both = f"SELECT {keys}unnest({self._numbers}) AS {K}, NULL AS {SHOWN}, 1 AS {FRESH}, {LATE} FROM fresh"
        both = f"SELECT * EXCLUDE ({LATE}) FROM ({both}) WHERE {self._end(K)} > {LATE} "
        both += f"UNION ALL SELECT {keys}{K}, {SHOWN}, {FRESH} FROM windows"
        each = (
            f"SELECT {keys}{K}, max({SHOWN}) AS {SHOWN}, max({FRESH}) AS {FRESH} FROM ({both}){self.panes.grouped(K)}"
        )
        shown = (
            f"{SHOWN} IS NULL OR {call.now_us} - {SHOWN} >= {self.every_us}" if self.every_us is not None else "FALSE"
        )
        ended = f"SELECT *, {self._end(K)} AS {END} FROM ({each})"
        return f"SELECT *, {FRESH} = 1 AND ({END} <= {now} OR {shown}) AS {DUE} FROM ({ended})"

    @property
    def _numbers(self) -> str:
        """The windows that a pane belongs to."""
        step, wide = self.window.slide_us // self._pane, self.window.size_us // self._pane
        return f"range(ceil(({PANE} - {wide - 1}) / {step})::BIGINT, {self._newest} + 1)"

    def _shown(self) -> str:
        start = f"{K} * {self.window.slide_us} + {self.window.offset_us}"
        each = f"SELECT {self.panes.listed}, {PANE}, unnest({self._numbers}) AS {K} FROM panes"
        same = f"{self.panes.same_key('p', 'w')} AND p.{K} = w.{K}"
        due = f"SELECT p.* FROM ({each}) p JOIN windows w ON {same} WHERE w.{DUE}"
        bounds = f"make_timestamptz({start}) AS window_start, make_timestamptz({self._end(K)}) AS window_end, "
        bounds += f"make_timestamptz({self._end(K)} - 1) AS {TIME}"
        return f"SELECT *, {bounds} FROM ({self.panes.merged(f'({due})', K)})"
