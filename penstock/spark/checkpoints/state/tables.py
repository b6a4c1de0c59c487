"""The state of a node after an epoch: where it is, the table that readers return, and their interface."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.errors import BadValue, CheckpointMissing, choices
from penstock.spark.checkpoints.history import History, StateStoreFiles
from penstock.spark.checkpoints.identity import read_identity
from penstock.spark.checkpoints.inspect import checkpoint_at
from penstock.spark.checkpoints.layout import Operator, read_layout
from penstock.spark.checkpoints.runs import KEYED
from penstock.storage.file_names import file_name
from penstock.storage.folders import Folder

Row = dict[str, Any]


@dataclass(frozen=True)
class StateVersion:
    """The state of one operator after one epoch; `number` is Spark's number of the operator in its query.

    `first_us` is the time that is zero in this state.
    """

    root: Folder
    query: str
    history: History
    number: int
    operator: Operator
    epoch: int
    first_us: int

    @property
    def runs(self) -> Folder:
        """The folder of the operator's runs, where it has keyed state."""
        return checkpoint_at(self.root) / KEYED / self.query / file_name(self.operator.node)

    @property
    def stores(self) -> list[StateStoreFiles]:
        """The files of the operator, by partition and store."""
        return _stores(self.history, self.number)


@dataclass(frozen=True)
class StateTable:
    """State after an epoch, ordered by `keys`; `more` if there are rows beyond those; `offsets` is what was read."""

    node: str
    epoch: int
    columns: list[str]
    rows: list[Row]
    more: bool
    offsets: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)


class StateReader(Protocol):
    """Reads one version of state."""

    def read(self, key: str | None = None, limit: int = 100) -> StateTable:
        """Return the rows of a key, or of all keys, up to a limit."""


def find_state(root: Folder, node: str | None = None, at: int | None = None) -> StateVersion:
    """Return the newest state of a node, or that after epoch `at`; for a node in several branches, the first one's."""
    data = checkpoint_at(root)
    query, number, operator = _find_operator(data, node)
    history, identity = History(data / "queries" / query), read_identity(data)
    first_us = (identity.first_us if identity else 0) - operator.lag_us
    return StateVersion(root, query, history, number, operator, _epoch(history, number, at), first_us)


def find_view(root: Folder, name: str | None = None) -> str:
    """Return the node of the view of that name, or of the only one."""
    data = checkpoint_at(root)
    operators = (one for layout in read_layout(data).queries.values() for one in layout.operators)
    found = list(dict.fromkeys(one.node for one in operators if one.columns is not None))
    if not found:
        message = f"{data} has no view"
        raise CheckpointMissing(message, hint="a pipeline has one if a View ends in an output, after its first epoch")
    return _chosen(name, found, "views", "--name", data)


def require_keys(operator: Operator) -> None:
    """Raise if state is asked for by key and has none."""
    if not operator.keys:
        message = f"the state of '{operator.node}' has no key"
        raise BadValue(message, hint="leave out --key")


def _find_operator(data: Folder, node: str | None) -> tuple[str, int, Operator]:
    found: dict[str, tuple[str, int, Operator]] = {}
    for query, layout in read_layout(data).queries.items():
        for number, operator in enumerate(layout.operators):
            found.setdefault(operator.node, (query, number, operator))
    if not found:
        message = f"{data} has no state"
        hint = "only aggregate, reduce, deduplicate, process and joins have state, after the first committed epoch"
        raise CheckpointMissing(message, hint=hint)
    return found[_chosen(node, found, "nodes", "--node", data)]


def _chosen(name: str | None, found: Collection[str], what: str, option: str, data: Folder) -> str:
    """Return the name, which must be there, or without one the only one that is there."""
    if name is None and len(found) > 1:
        message = f"{data} has the state of several {what}"
        raise BadValue(message, hint=f"choose one with {option}; {choices(what, found)}")
    if name is not None and name not in found:
        message = f"{data} has no state of '{name}'"
        raise CheckpointMissing(message, hint=choices(what, found, name))
    return next(iter(found)) if name is None else name


def _epoch(history: History, number: int, at: int | None) -> int:
    """Return the newest epoch whose state is retained, or `at` if its state is."""
    stores = _stores(history, number)
    retained = [e for e in history.committed if stores and all(next(s.chains(e + 1), None) for s in stores)]
    if not retained:
        message = f"{history.folder} has no state yet"
        raise CheckpointMissing(message, hint="wait for the first epoch of the job", transient=True)
    if at is None:
        return retained[-1]
    if at not in retained:
        message = f"the state after epoch {at} is not retained"
        first, last = retained[0], retained[-1]
        raise CheckpointMissing(message, hint=f"retained: epoch {first}" + (f" to {last}" if last > first else ""))
    return at


def _stores(history: History, number: int) -> list[StateStoreFiles]:
    return [store for store in history.stores if store.operator == number]
