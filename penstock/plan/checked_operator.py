"""What operators of streams and of views share: each is checked when it is built, and compared by its fields."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar

from penstock.errors import BadSchema, PipelineError
from penstock.schema import Schema

# The prefix of internal columns.
OWN_COLUMNS = "__penstock_"


class CheckedOperator:
    """One operator of a plan. Frozen; checked and typed when it is built; two that are alike are one."""

    kind: ClassVar[str]
    schema: Schema

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "schema", self._accepted(self._checked()))
        except PipelineError as error:
            error.node = error.node or self.label
            raise

    def _checked(self) -> Schema:
        """Check the arguments against the inputs and return the schema of the rows."""
        raise NotImplementedError

    def _accepted(self, schema: Schema) -> Schema:
        """Refuse a schema that such an operator cannot have: one with the name of an internal column."""
        taken = [name for name in schema.names if name.lower().startswith(OWN_COLUMNS)]
        if taken:
            message = f"the column name '{taken[0]}' is reserved: internal columns start with {OWN_COLUMNS}"
            hint = "rename it where it is read: give the source another schema, or the file a header"
            raise BadSchema(message, hint=hint)
        return schema

    @property
    def label(self) -> str:
        """The operator as an error names it."""
        return self.kind

    @property
    def detail(self) -> str:
        """Its arguments, as `explain` shows them."""
        return ""

    @cached_property
    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, part.name) for part in fields(self) if part.init)  # type: ignore[arg-type]

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self._values))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, CheckedOperator)
            and type(self) is type(other)
            and self._hash == other._hash
            and self._values == other._values
        )
