"""The nodes that leave out rows that came before."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.contracts import Sink
from penstock.durations import span_text
from penstock.errors import (
    BadValue,
    choices,
)
from penstock.plan.operators.grouped import Stateful, is_ordered, keys_text
from penstock.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Deduplicate(Stateful):
    """Rows of each key without those within the span of a row that was passed on; these are counted."""

    kind = "deduplicate"
    bucketed = True
    packs_rows = True
    sides = ("late",)
    keeps_columns = True
    counts_missing_as = "duplicate"
    keys: tuple[str, ...]
    within_us: int
    late_to: Sink | None = None

    def _checked(self) -> Schema:
        if not self.keys:
            message = "no key is given"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        self._check_input(self.keys, needs_time=True)
        return self.input.schema

    @property
    def detail(self) -> str:
        """Keys and span."""
        return f"by {', '.join(self.keys)} within {span_text(self.within_us)}"

    @property
    def kept(self) -> dict[str, str]:
        """The keys; Spark's own operator held them before, by the watermark: not what this one needs."""
        rule = {"compared with": "rows that were kept"}
        return {"keys": keys_text(self, self.keys), "within": span_text(self.within_us), **rule}

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The keys."""
        return self.keys

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys."""
        return self.keys

    @property
    def state_bound(self) -> str:
        """By event time."""
        return f"the watermark: a key goes {span_text(self.within_us)} after its row"

    @property
    def sets_timers(self) -> bool:
        """No key waits: the next rows of its bucket find it outdated."""
        return False

    @property
    def keeps_order(self) -> bool:
        """The rows that stay do."""
        return True

    @property
    def not_realtime(self) -> tuple[str, str]:
        """Spark's own operator is another."""
        why = "Spark's own deduplication compares rows with the watermark, so other rows would be dropped"
        return why, "deduplicate where the topic is read"


@dataclass(frozen=True, eq=False, kw_only=True)
class Distinct(Stateful):
    """Each different row once, when it comes for the first time; its repeats are counted as duplicates."""

    kind = "distinct"
    counts_missing_as = "duplicate"

    def _checked(self) -> Schema:
        self._check_input((), needs_time=False)
        maps = [field.name for field in self.input.schema if not is_ordered(field.type)]
        if maps:
            message = f"column '{maps[0]}' is {self.input.schema.types[maps[0]]}, whose values cannot be compared"
            raise BadValue(message, hint=f"leave it out, or compare its text: to_json({maps[0]})")
        return self.input.schema

    @property
    def event_time(self) -> bool:
        """Equal rows may have different times."""
        return False

    @property
    def over_all_time(self) -> bool:
        """Whatever the times of rows are."""
        return True

    @property
    def state_keys(self) -> tuple[str, ...]:
        """Whole rows."""
        return self.schema.names

    @property
    def keeps_order(self) -> bool:
        """The rows that come for the first time do."""
        return True

    @property
    def kept(self) -> dict[str, str]:
        """Whole rows."""
        return {"columns": self.input.schema.nullable().ddl}

    @property
    def warning(self) -> str:
        """State without a bound never shrinks."""
        return "all different rows are stored in the state forever; deduplicate(keys, within=...) expires them"

    @property
    def detail(self) -> str:
        """The columns."""
        return f"by {', '.join(self.input.schema.names)}"
