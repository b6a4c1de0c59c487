"""Windows of n rows of a key, in the order of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import pyarrow as pa
import pyarrow.compute as pc

from penstock.native.panes import Invocation, Panes, fits, is_over, run
from penstock.native.steps import PANE, quote
from penstock.values.state_tables import StateTable
from penstock.windows import Window

NUMBER = "window_number"
SEEN = "__penstock_seen"
_FIRST, _LAST = "__penstock_first", "__penstock_last"
_MORE, _BEFORE, _PLACE = "__penstock_more", "__penstock_before", "__penstock_place"


@dataclass(frozen=True)
class CountWindows:
    """One call for a bucket: rows in, full windows out; at the end of input also those that are not full.

    The state holds how many rows of each key were seen, and a partial of each pane that an open window needs.
    """

    panes: Panes
    window: Window

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Take the rows and give the windows that they fill."""
        over = is_over(call)
        seen, panes = self._before(call)
        rows = call.rows.append_column(_PLACE, pa.array(range(call.rows.num_rows), pa.int64()))
        counts = run(self._counts(over), rows=rows, seen=seen)
        panes = run(self._merged(), rows=rows, seen=seen, panes=panes)
        closing = pc.any(pc.greater(counts.column(_LAST), counts.column(_FIRST))).as_py()
        if closing:
            yield run(self._windows(), panes=panes, counts=counts)
            panes = run(self._left(), panes=panes, counts=counts)
        call.state = None
        if not over and counts.num_rows:
            kept = fits(counts, self.panes.key_table(SEEN)), fits(panes, self.panes.empty(PANE))
            call.state = tuple(map(StateTable, kept))

    def _before(self, call: Invocation) -> list[pa.Table]:
        if call.state is not None:
            return [one.rows for one in call.state]
        return [self.panes.key_table(SEEN), self.panes.empty(PANE)]

    def _left(self) -> str:
        """The panes that a window needs which is open."""
        same = self.panes.same_key("panes", "counts")
        return f"SELECT panes.* FROM panes JOIN counts ON {same} WHERE {PANE} >= {_LAST} * {self._step}"

    @property
    def _pane(self) -> int:
        return gcd(self.window.size_us, self.window.slide_us)

    @property
    def _step(self) -> int:
        return self.window.slide_us // self._pane

    def _counts(self, over: bool) -> str:
        """Count each key's rows; of its windows `first` is the next to close, `last` the first that stays open."""
        keys = ", ".join([*map(quote, self.panes.keys), ""])
        both = (
            f"SELECT {keys}1 AS {_MORE}, 0 AS {_BEFORE} FROM rows "
            f"UNION ALL SELECT {keys}{SEEN}, {SEEN} AS {_BEFORE} FROM seen"
        )
        sums = f"SELECT {keys}sum({_MORE})::BIGINT AS {SEEN}, sum({_BEFORE})::BIGINT AS {_BEFORE} FROM ({both})"
        started = f"({SEEN} + {self.window.slide_us - 1}) // {self.window.slide_us}"
        last = started if over else self._closed(SEEN)
        return f"SELECT *, {self._closed(_BEFORE)} AS {_FIRST}, {last} AS {_LAST} FROM ({sums}{self.panes.grouped()})"

    def _closed(self, rows: str) -> str:
        """How many windows are full after so many rows."""
        size, slide = self.window.size_us, self.window.slide_us
        return f"CASE WHEN {rows} < {size} THEN 0 ELSE ({rows} - {size}) // {slide} + 1 END"

    def _merged(self) -> str:
        place = f"row_number() OVER ({self.panes.partition('rows')} ORDER BY {_PLACE}) - 1 + coalesce(seen.{SEEN}, 0)"
        numbered = f"SELECT {self.panes.of('rows')}, (({place}) // {self._pane})::BIGINT AS {PANE} "
        numbered += f"FROM rows LEFT JOIN seen ON {self.panes.same_key('rows', 'seen')} ORDER BY {_PLACE}"
        return self.panes.together(numbered, "panes", PANE)

    def _windows(self) -> str:
        """Merge the panes of each window that closes."""
        wide = self.window.size_us // self._pane
        earliest = f"greatest({PANE} - {wide - 1} + {self._step - 1}, 0) // {self._step}"
        numbers = f"range(greatest({earliest}, {_FIRST}), least({PANE} // {self._step}, {_LAST} - 1) + 1)"
        same = self.panes.same_key("panes", "counts")
        each = f"SELECT {self.panes.of('panes')}, {PANE}, unnest({numbers}) AS {NUMBER} "
        each += f"FROM panes JOIN counts ON {same}"
        return self.panes.merged(f"({each})", NUMBER)
