"""What the newest epoch of each job reports of its nodes: apart from the jobs, for a plan may have many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from penstock.control.store.repositories.repository import Repository, insert_into, record
from penstock.control.store.tables import nodes


@dataclass(frozen=True, kw_only=True)
class NodeFigures:
    """Counts, state and watermarks of a job's nodes, by their names, as of an epoch."""

    job: str
    epoch: int
    at: float
    nodes: dict[str, Any]


class Nodes(Repository):
    """The newest figures of each job."""

    def put(self, figures: Iterable[NodeFigures]) -> None:
        """Store figures in place of older ones."""
        rows = sorted((asdict(one) for one in figures), key=lambda row: str(row["job"]))
        if not rows:
            return
        with self._writing() as connection:
            query = insert_into(connection, nodes)
            changes = {column.key: column for column in query.excluded if not column.primary_key}
            connection.execute(query.on_conflict_do_update(index_elements=[nodes.c.job], set_=changes), rows)

    def find(self, job: str) -> NodeFigures | None:
        """Return the figures of a job; None before its first epoch."""
        with self._reading() as connection:
            row = connection.execute(select(nodes).where(nodes.c.job == job)).one_or_none()
        return None if row is None else record(NodeFigures, row)
