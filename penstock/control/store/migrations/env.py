"""Run by Alembic for every command: uses the connection and transaction of its caller."""

from __future__ import annotations

from alembic import context

from penstock.control.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
