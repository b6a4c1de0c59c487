"""Expressions that can fail on a row, evaluated so that DuckDB flags the row instead of raising.

`TRY(struct_pack(value := expression))` is null if and only if the expression failed, because a struct is never null.
DuckDB moves common subexpressions out of a TRY, where they raise: queries with attempts run without that optimiser.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TRIED = "__penstock_tried"
WHY = "__penstock_why"
_VALUE = "value"


@dataclass(frozen=True)
class Attempt:
    """One expression: the column of its attempt, DuckDB's SQL for it, and its probes with their reasons."""

    column: str
    sql: str
    probes: tuple[tuple[str, str], ...]
    otherwise: str

    @property
    def value(self) -> str:
        """The value of the expression, where it did not fail."""
        return f"{self.column}.{_VALUE}"


def columns(tried: Iterable[Attempt]) -> str:
    """Return the attempts as columns of a SELECT, ready for `str.format`."""
    listed = ", ".join(f"{_tried(one.sql)} AS {one.column}" for one in tried)
    return listed.replace("{", "{{").replace("}", "}}")


def succeeded(tried: Iterable[Attempt]) -> str:
    """Return the condition that no attempt failed."""
    return " AND ".join(f"{one.column} IS NOT NULL" for one in tried)


def failed_rows(tried: Iterable[Attempt], rows: str, where: str = "TRUE") -> str:
    """Return a query for the rows on which an attempt failed, and in `WHY` the number of the reason."""
    tried = tuple(tried)
    numbers = iter(range(len(reasons(tried))))
    whens = " ".join(f"WHEN {one.column} IS NULL THEN {_why(one, numbers)}" for one in tried)
    listed = ", ".join(f"{_tried(one.sql)} AS {one.column}" for one in tried)
    failed = " OR ".join(f"{one.column} IS NULL" for one in tried)
    return f"SELECT *, CASE {whens} END AS {WHY} FROM (SELECT *, {listed} FROM {rows} WHERE {where}) WHERE {failed}"


def reasons(tried: Iterable[Attempt]) -> list[str]:
    """Return the text of each reason, by its number."""
    return [text for one in tried for text in (*(reason for _, reason in one.probes), one.otherwise)]


def _tried(sql: str) -> str:
    return f"TRY(struct_pack({_VALUE} := {sql}))"


def _why(one: Attempt, numbers: Iterable[int]) -> str:
    given = iter(numbers)
    whens = " ".join(f"WHEN {_tried(sql)} IS NULL THEN {next(given)}" for sql, _ in one.probes)
    last = next(given)
    return f"CASE {whens} ELSE {last} END" if whens else str(last)
