"""The oracle of views: DuckDB computes the whole query again over the tables that the rows so far make."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from penstock.schema import Schema
from penstock.testing import EOF

Row = dict[str, Any]
Bag = Counter[tuple[tuple[str, Any], ...]]


@dataclass
class Feed:
    """Rows of one source, epoch by epoch, and the table that they make: the last row of each key, or all rows.

    A row with `gone` set deletes its key, or without a key one row that equals it.
    """

    name: str
    ddl: str
    key: tuple[str, ...] = ()
    epochs: list[list[Row]] = field(default_factory=list)

    def items(self, *, between: Any = EOF) -> list[Any]:
        """Return the rows with an end of epoch between them."""
        found: list[Any] = []
        for rows in self.epochs:
            found += [*rows, between]
        return found[:-1]

    def table(self, upto: int) -> pa.Table:
        """Return the table after an epoch."""
        names = [name for name in Schema(self.ddl).names if name != "gone"]
        last: dict[tuple[Any, ...], Row] = {}
        bag: list[Row] = []
        for row in (row for rows in self.epochs[: upto + 1] for row in rows):
            values = {name: row.get(name) for name in names}
            if self.key:
                key = tuple(row[name] for name in self.key)
                last.pop(key, None)
                if not row.get("gone"):
                    last[key] = values
            elif row.get("gone"):
                if values in bag:
                    bag.remove(values)
            else:
                bag.append(values)
        rows = list(last.values()) if self.key else bag
        arrow = Schema(self.ddl).nullable().arrow
        return pa.Table.from_pylist(rows, schema=pa.schema([arrow.field(name) for name in names]))


def recomputed(query: str, feeds: Sequence[Feed], upto: int) -> Bag:
    """Return what DuckDB computes after an epoch."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        for feed in feeds:
            connection.register(feed.name, feed.table(upto))
        return bag(connection.sql(query).to_arrow_table().to_pylist())


def bag(rows: Sequence[Row]) -> Bag:
    """Return rows as a bag."""
    return Counter(tuple((name, _plain(value)) for name, value in row.items()) for row in rows)


def applied(before: Bag, changes: Sequence[Row], unique: Sequence[str] | None) -> Bag:
    """Apply the changes of one epoch; fails if a delete or an update has no row, or an insert has one already."""
    after = before.copy()
    for change in sorted(changes, key=lambda row: row["_change"] != "delete"):
        row = {name: value for name, value in change.items() if name != "_change"}
        (mine,) = bag([row])
        if change["_change"] == "delete":
            assert after[mine] > 0, f"{row} is deleted and not there"
            after[mine] -= 1
        else:
            same = (
                [] if unique is None else [one for one in +after if all(dict(one)[n] == dict(mine)[n] for n in unique)]
            )
            assert (change["_change"] == "update") == bool(same), f"{change} finds {same}"
            for one in same:
                del after[one]
            after[mine] += 1
    return +after


def check(
    epochs: Mapping[int, list[Row]], query: str, feeds: Sequence[Feed], unique: Sequence[str] | None
) -> list[Bag]:
    """Compare the view with DuckDB's result after every epoch, and return all versions.

    The rows of several sources that belong together may come in as many epochs: Spark asks one after the other for new
    rows, while they are released.
    """
    found, versions = Counter(), []
    left = deque(rows for _, rows in sorted(epochs.items()) if rows)
    for number in range(max(len(feed.epochs) for feed in feeds)):
        expected = recomputed(query, feeds, number)
        for _ in feeds:
            if found != expected and left:
                found = applied(found, left.popleft(), unique)
        assert found == expected, f"after epoch {number}: missing {expected - found}, extra {found - expected}"
        versions.append(found)
    assert not left, "an epoch without rows changed the view"
    return versions


def _key(row: tuple[tuple[str, Any], ...], unique: Sequence[str]) -> list[Any]:
    return [dict(row)[name] for name in unique]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 9)
    return repr(value) if isinstance(value, list | dict) else value
