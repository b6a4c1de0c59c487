"""The nodes that call Python functions on rows or batches, and keep no state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.contracts import OnError
from penstock.durations import span_text
from penstock.errors import BadValue
from penstock.plan.operators.node import OneInput
from penstock.plan.operators.stateless import final_only
from penstock.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class PythonNode(OneInput):
    """A Python function over rows or batches."""

    repeatable = False
    fn: Callable[..., Any]
    output: Schema
    using: Callable[[], Any] | None = None
    on_error: OnError | None = None
    deterministic: bool = True

    def _checked(self) -> Schema:
        final_only(self)
        return self.output

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The function, and what makes its helper."""
        return (self.fn,) if self.using is None else (self.fn, self.using)

    @property
    def detail(self) -> str:
        """The function's name."""
        return getattr(self.fn, "__qualname__", repr(self.fn))


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(PythonNode):
    """One row in, one row out."""

    kind = "map"


@dataclass(frozen=True, eq=False, kw_only=True)
class MapAsync(PythonNode):
    """One row in, one row out, by asynchronous calls; not deterministic."""

    kind = "map_async"
    waits_for_calls = True
    deterministic: bool = False
    concurrency: int = 64
    timeout_us: int = 10_000_000
    retries: int = 2
    in_order: bool = True

    def _checked(self) -> Schema:
        for what, number, least in (("concurrency", self.concurrency, 1), ("retries", self.retries, 0)):
            if not isinstance(number, int) or number < least:
                message = f"{what}={number!r} is not a whole number from {least}"
                raise BadValue(message, hint=f"pass {what}={least} or more")
        if not self.timeout_us:
            message = "timeout must be more than 0"
            raise BadValue(message, hint='pass timeout="10s" or another span')
        return super()._checked()

    @property
    def detail(self) -> str:
        """The function, and how it is called."""
        order = "in order" if self.in_order else "as they come"
        tries = f"{self.concurrency} at once, timeout {span_text(self.timeout_us)}, retries {self.retries}"
        return f"{super().detail}, {tries}, {order}"


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatMap(PythonNode):
    """One row in, any number out, to the main output or to a named side output."""

    kind = "flat_map"
    makes_rows = True
    outputs: tuple[tuple[str, Schema], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatches(PythonNode):
    """An Arrow batch in, an Arrow batch out; event time ends here."""

    kind = "map_batches"
    loses_positions = True
    row_wise = False
    makes_rows = True

    @property
    def event_time(self) -> bool:
        """A batch has no single time."""
        return False
