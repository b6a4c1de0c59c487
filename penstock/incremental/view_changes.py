"""From changes with weights to rows that say what they are: inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import RunError
from penstock.incremental.circuit.changes import keys, taken, values_of, weights
from penstock.incremental.circuit.row_identity import Flags, Numbers, grouped

INSERT, UPDATE, DELETE = "insert", "update", "delete"


def named_changes(changes: pa.Table, unique: Sequence[str] | None, change: str, order: str) -> pa.Table:
    """Return rows with a column `change`, and a column `order` by which deletes come before what is inserted.

    `changes` has each row once. With `unique`, columns that no two rows of the view have in common, the row that takes
    the place of another is an update, and the other one is left out.
    """
    signs = weights(changes)
    if unique is None:
        positions = np.repeat(np.arange(len(signs)), np.abs(signs))
        deletes = signs[positions] < 0
        return _named(changes, positions, deletes, np.zeros(len(positions), bool), change, order)
    groups = grouped(found := keys(changes, unique), found.hashes())
    came, left = (np.zeros(len(groups), bool) for _ in range(2))
    came[groups.ids[signs > 0]] = True
    left[groups.ids[signs < 0]] = True
    if int(signs[signs > 0].sum()) > int(came.sum()):
        raise _not_unique(changes, unique)
    positions = np.flatnonzero((signs > 0) | ~came[groups.ids])
    deletes, updates = signs[positions] < 0, left[groups.ids[positions]]
    return _named(changes, positions, deletes, updates & ~deletes, change, order)


def _named(rows: pa.Table, positions: Numbers, deletes: Flags, updates: Flags, change: str, order: str) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.where(deletes, 0, np.where(updates, 1, 2)), pa.int32()), pa.array([DELETE, UPDATE, INSERT])
    )
    chosen = taken(rows.select(values_of(rows)), positions)
    marked = chosen.append_column(change, names.cast(pa.string()))
    return marked.append_column(order, pa.array((~deletes).astype(np.int64)))


def _not_unique(changes: pa.Table, unique: Sequence[str]) -> RunError:
    message = f"two rows of the view have the same {', '.join(unique)}"
    return RunError(message, hint="no two rows may have the same key: report this with the view's definition")
