"""What describes a function on the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.plan.portable.parts import Part
from penstock.plan.types import Type

_KINDS = {
    "whole": ("tinyint", "smallint", "int", "bigint"),
    "int": ("tinyint", "smallint", "int"),
    "float": ("float", "double"),
}


@dataclass(frozen=True)
class Form:
    """One form of a function: its names, the kinds of its arguments, and what it is in DuckDB.

    The last kind may end in `*`: one or more of it. `fails` says that a row can make it raise.
    """

    names: str
    takes: str
    sql: str | Callable[..., str]
    fails: bool = False

    @property
    def keys(self) -> list[str]:
        """What names this form in the list of all forms."""
        return [f"{name}({self.takes})" for name in self.names.split()]

    def fits(self, kinds: list[Type]) -> bool:
        """Whether the form takes arguments of these types."""
        takes = self.takes.split()
        if takes and takes[-1].endswith("*"):
            last = takes.pop()[:-1]
            takes += [last] * max(1, len(kinds) - len(takes))
        return len(takes) == len(kinds) and all(map(_is, kinds, takes))

    def write(self, parts: list[Part]) -> str:
        """Write the call for DuckDB."""
        if isinstance(self.sql, str):
            return self.sql.format(*(part.sql for part in parts))
        return self.sql(*parts)


def _is(kind: Type, wanted: str) -> bool:
    return kind.name in _KINDS.get(wanted, (wanted,))
