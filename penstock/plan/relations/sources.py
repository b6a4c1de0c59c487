"""Where the rows of a view come from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadValue, choices
from penstock.plan.relations.relation import OneInput, Relation, comparable, condition, known_names
from penstock.schema import Schema


@dataclass(frozen=True, eq=False)
class Input(Relation):
    """The rows of a stream, or changes of another view: each row has a weight, +1 if none is given."""

    kind = "input"
    name: str
    schema: Schema

    def _checked(self) -> Schema:
        if not self.name:
            message = "the name of an input is empty"
            raise BadValue(message, hint='write Input("orders", schema)')
        return Schema(self.schema)

    @property
    def label(self) -> str:
        """With its name."""
        return f"input '{self.name}'"

    @property
    def detail(self) -> str:
        """Its columns."""
        return f"{self.name} ({self.schema.ddl})"


@dataclass(frozen=True, eq=False)
class Latest(OneInput):
    """The last row of each key, of rows in their order; a row for which `remove` holds deletes its key.

    The result has the columns `key` and `value` (None: all others). Without a key it is a bag: all rows count, and a
    row for which `remove` holds takes out one row with equal `value` columns, if there is one. Its input is an `Input`:
    rows of another relation have no order, and may be taken out again.
    """

    kind = "latest"
    input: Relation
    key: tuple[str, ...] = ()
    value: tuple[str, ...] | None = None
    remove: str | None = None

    def _checked(self) -> Schema:
        if not isinstance(self.input, Input):
            message = f"the rows of {self.input.label} have no order, so none of them is the last"
            raise BadValue(
                message, hint="read its changes as a stream: view.changes().view(key, remove=\"_change = 'delete'\")"
            )
        given = self.input.schema
        keys = known_names(self.key, given, "key")
        for name in self.value or ():
            given.field(name)
            if name in self.key:
                message = f"'{name}' is both key and value"
                raise BadValue(message, hint="leave it out of value")
        values = self.value if self.value is not None else tuple(name for name in given.names if name not in self.key)
        if self.remove is not None:
            condition(self.remove, given, node=self.label)
        made = Schema((*keys, *(given.field(name) for name in values)))
        if not self.key:
            if not values:
                message = "neither a key nor a value is given"
                raise BadValue(message, hint=choices("columns here", given.names))
            comparable(made, "rows of a bag")
        return made

    @property
    def keys_unique(self) -> tuple[str, ...] | None:
        """The key."""
        return self.key or None

    @property
    def detail(self) -> str:
        """Key and deletion."""
        by = f"by {', '.join(self.key)}" if self.key else "all rows"
        return by + (f", removed where {self.remove}" if self.remove else "")
