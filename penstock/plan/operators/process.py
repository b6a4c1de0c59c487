"""A process function over the rows of each key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.contracts import OnError, Sink
from penstock.errors import BadValue, choices
from penstock.plan.operators.grouped import Stateful
from penstock.process import LATE, Declared, Process, declared
from penstock.schema import Schema

# What the meaning of state calls an attribute: one that is added or removed leaves the others as they are.
ATTRIBUTE = "state "


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyedProcess(Stateful):
    """Any number of rows for each row and timer of a key, with state per key."""

    kind = "process"
    bucketed = True
    packs_rows = True
    emits_in_order = True
    keys: tuple[str, ...]
    process: Process
    late_to: Sink | None = None
    on_error: OnError | None = None

    def _checked(self) -> Schema:
        if not self.keys:
            message = "no key is given"
            raise BadValue(message, hint=choices("columns here", self.input.schema.names))
        self._check_input(self.keys, needs_time=self.late_to is not None)
        return self.declared.output

    @cached_property
    def declared(self) -> Declared:
        """What the process declares."""
        return declared(self.process)

    @property
    def outputs(self) -> tuple[tuple[str, Schema], ...]:
        """The named outputs besides the main one."""
        return tuple(self.declared.sides.items())

    @property
    def sides(self) -> tuple[str, ...]:  # type: ignore[override]
        """Without event time no row is late."""
        return (LATE,) if self.input.event_time else ()

    @property
    def key(self) -> tuple[str, ...]:
        """Rows are final."""
        return ()

    @property
    def kept(self) -> dict[str, str]:
        """The keys, and each attribute."""
        types = self.input.schema.types
        keys = ", ".join(f"{key} {types[key]}" for key in self.keys)
        return {"keys": keys} | {f"{ATTRIBUTE}{name}": spec.meaning for name, spec in self.declared.states.items()}

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The methods that are called."""
        kind = type(self.process)
        return kind.on_rows if self.declared.batches else kind.on_row, kind.on_timer

    @property
    def classes(self) -> tuple[type, ...]:
        """The process and its bases."""
        return type(self.process).__mro__

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys."""
        return self.keys

    @property
    def state_bound(self) -> str:
        """As the process declares."""
        return "what the process function removes, and the time to live of its attributes"

    @property
    def detail(self) -> str:
        """Keys, class and state."""
        states = "; ".join(f"{name}: {spec}" for name, spec in self.declared.states.items())
        return f"by {', '.join(self.keys)}: {type(self.process).__name__}" + (f" ({states})" if states else "")
