"""What every node of a plan has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

from penstock.errors import BadSchema, PipelineError
from penstock.schema import Schema

# Marks a field that nodes did not always have: where it is as if it were not there, fingerprints leave it out.
SINCE_LATER = {"since": "later"}
# Of keys, where state is kept by buckets of them. Keys find their state again by it: another number is another state.
# A bucket costs a call in every epoch that touches it, and is read and written whole.
BUCKETS = 64
# How the names of internal columns begin.
OWN_COLUMNS = "__penstock_"


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One operator. Frozen; checked and typed when it is built; two that are alike are one.

    Invariants: `inputs` were built before it; `schema` holds on every row that leaves it; `updating` means that a
    row replaces an earlier one with the same `key`; `event_time` says whether each row still has its time; `bucketed`
    means that its state is kept by buckets of keys, whose rows come in the order in which their source has them.
    """

    kind: ClassVar[str]
    stateful: ClassVar[bool] = False
    bucketed: ClassVar[bool] = False
    sides: ClassVar[tuple[str, ...]] = ()
    name: str | None = None
    schema: Schema = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "schema", _without_own(self._checked()))
        except PipelineError as error:
            error.node = error.node or self.label
            raise

    def _checked(self) -> Schema:
        """Check the node's arguments against its inputs and return the schema of its rows."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose rows come in, in order."""
        return ()

    @property
    def updating(self) -> bool:
        """Whether later rows replace earlier ones."""
        return any(node.updating for node in self.inputs)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell which row a later one replaces; empty if rows are final."""
        return self.inputs[0].key if self.inputs else ()

    @property
    def event_time(self) -> bool:
        """Whether rows carry their event time."""
        return bool(self.inputs) and all(node.event_time for node in self.inputs)

    @property
    def label(self) -> str:
        """The node as an error names it."""
        return f"{self.kind} '{self.name}'" if self.name else self.kind

    @property
    def detail(self) -> str:
        """The node's arguments, as `explain` shows them."""
        return ""

    @property
    def warning(self) -> str:
        """What a user should know before running it; `explain` prints it."""
        return ""

    def side_schema(self, side: str) -> Schema:
        """The columns of what goes aside: late rows are as they came."""
        return self.inputs[0].schema

    @property
    def waits(self) -> bool:
        """Whether its rows leave when the watermark says that they are final, which Spark knows in append mode only."""
        return False

    @property
    def kept(self) -> dict[str, str]:
        """What gives the node's state its meaning, part by part; a change of one is a change of state."""
        return {}

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The Python functions that the node calls."""
        return ()

    @cached_property
    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, part.name) for part in fields(self) if part.init)

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self._values))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Node)
            and type(self) is type(other)
            and self._hash == other._hash
            and self._values == other._values
        )


def _without_own(schema: Schema) -> Schema:
    """Refuse columns that would be taken for those that travel beside the user's."""
    taken = [name for name in schema.names if name.lower().startswith(OWN_COLUMNS)]
    if taken:
        message = f"a column cannot be called '{taken[0]}': names that begin with {OWN_COLUMNS} are Penstock's own"
        raise BadSchema(
            message, hint="rename it where it is read: give the source another schema, or the file a header"
        )
    return schema


@dataclass(frozen=True, eq=False, kw_only=True)
class OneInput(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)
