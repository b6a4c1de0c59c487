"""Jobs and their history, commands, leases and idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_NOT_DELETED = sa.text("deleted_at IS NULL")


def _job_key() -> sa.Column[str]:
    return sa.Column("job", sa.Text, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)


def _job(*, nullable: bool = False) -> sa.Column[str]:
    return sa.Column("job", sa.Text, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=nullable)


def upgrade() -> None:
    """Create the tables."""
    _jobs()
    _versions_and_runs()
    _history()
    _commands()
    _managers()


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("run", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.Column("parallelism", sa.Integer),
        sa.Column("policy", sa.JSON),
        sa.Column("until", sa.Text),
        sa.Column("pid", sa.BigInteger),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("error", sa.JSON),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("arguments", sa.JSON, nullable=False),
        sa.Column("entry", sa.Text),
        sa.Column("cores", sa.Double),
        sa.Column("memory", sa.Text),
        sa.Column("checkpoint", sa.Text),
        sa.Column("autoscaling", sa.JSON),
        sa.Column("pool", sa.Text),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("machine", sa.JSON),
        sa.Column("progress", sa.JSON),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("deleted_at", sa.Double),
    )
    op.create_index(
        "jobs_name", "jobs", ["name"], unique=True, sqlite_where=_NOT_DELETED, postgresql_where=_NOT_DELETED
    )
    op.create_index("jobs_created", "jobs", ["created_at", "id"])
    op.create_index("jobs_state", "jobs", ["state", "created_at", "id"])


def _versions_and_runs() -> None:
    op.create_table(
        "versions",
        _job_key(),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("plan", sa.JSON),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("arguments", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("created_by", sa.Text),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        _job(nullable=True),
        sa.Column("version", sa.Integer),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("launcher", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.Column("process_started", sa.Double),
        sa.Column("socket", sa.Text),
        sa.Column("token", sa.BigInteger),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("outcome", sa.Text),
        sa.Column("exit_code", sa.Integer),
        sa.Column("error", sa.JSON),
    )
    op.create_index("runs_job", "runs", ["job", "started_at"])
    op.create_index("runs_ended", "runs", ["ended_at"])


def _history() -> None:
    op.create_table(
        "transitions",
        _job_key(),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("from_state", sa.Text),
        sa.Column("to_state", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "epochs",
        _job_key(),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("run", sa.Text),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("rows_in", sa.BigInteger, nullable=False),
        sa.Column("rows_out", sa.BigInteger, nullable=False),
        sa.Column("late", sa.BigInteger, nullable=False),
        sa.Column("rejected", sa.BigInteger, nullable=False),
        sa.Column("duration_ms", sa.Double, nullable=False),
        sa.Column("phases", sa.JSON),
        sa.Column("watermark", sa.Double),
    )
    op.create_table(
        "savepoints",
        _job_key(),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("message", sa.Text),
    )
    op.create_table(
        "exceptions",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        _job(),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("hint", sa.Text),
        sa.Column("run", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("exceptions_job", "exceptions", ["job", "id"])


def _commands() -> None:
    op.create_table(
        "commands",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        _job(),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("arguments", sa.JSON, nullable=False),
        sa.Column("requested_by", sa.Text),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("message", sa.Text),
        sa.Column("done_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_index("commands_state", "commands", ["state", "id"])
    op.create_index("commands_job", "commands", ["job", "id"])


def _managers() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("idempotency_keys_at", "idempotency_keys", ["at"])
