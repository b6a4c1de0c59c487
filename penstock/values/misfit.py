"""A value that its declared type cannot hold."""

from __future__ import annotations

from typing import Any

_LONGEST = 200


class Misfit(ValueError):
    """A Python value that a declared type cannot hold exactly; `path` leads to it from the row.

    >>> Misfit(3.7, "bigint").within(2).within("sizes").text
    "column 'sizes[2]' is bigint, and was given 3.7 (float)"

    `what` is called by another name where there is no column.
    """

    what = "the row"

    def __init__(self, value: Any, kind: str, why: str = "") -> None:
        super().__init__(value, kind, why)
        self.shown, self.kind, self.why = shown(value), kind, why
        self.path: tuple[str | int, ...] = ()

    def within(self, part: str | int) -> Misfit:
        """Return it as part of a column, of an array or of a map."""
        self.path = (part, *self.path)
        return self

    def without(self, parts: int) -> Misfit:
        """Return it without the first parts of its path."""
        self.path = self.path[parts:]
        return self

    @property
    def place(self) -> str:
        """The column, and where in it."""
        first, *rest = self.path or ("",)
        return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)

    @property
    def text(self) -> str:
        """Say which column, its type and the value."""
        where = f"column '{self.place}'" if self.path else self.what
        return f"{where} is {self.kind}, and was given {self.shown}" + (f": {self.why}" if self.why else "")

    def __str__(self) -> str:
        return self.text


def shown(value: Any) -> str:
    """Return a value and its type, short enough for a message."""
    try:
        text = repr(value)
    except Exception:
        text = "a value whose repr() fails"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return text if value is None else f"{text} ({type(value).__name__})"
