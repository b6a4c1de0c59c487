"""The tables, as they are after the newest migration. A test compares them with the migrations."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    text,
)

from penstock.control.store.columns import Json, PlainText, Seconds

metadata = MetaData()
# Keys that the database counts: SQLite counts only columns of its type INTEGER.
_Serial = BigInteger().with_variant(Integer, "sqlite")
_NOT_DELETED = text("deleted_at IS NULL")


def _job() -> Column[str]:
    return Column("job", PlainText, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False)


def _job_key() -> Column[str]:
    return Column("job", PlainText, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)


jobs = Table(
    "jobs",
    metadata,
    Column("id", PlainText, primary_key=True),
    Column("name", PlainText, nullable=False),
    Column("state", PlainText, nullable=False),
    Column("reason", PlainText),
    Column("version", Integer, nullable=False),
    Column("run", PlainText),
    Column("attempt", Integer, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("parallelism", Integer),
    Column("policy", Json),
    Column("until", PlainText),
    Column("pid", BigInteger),
    Column("started_at", Seconds),
    Column("ended_at", Seconds),
    Column("error", Json),
    Column("settings", Json, nullable=False),
    Column("arguments", Json, nullable=False),
    Column("entry", PlainText),
    Column("cores", Double),
    Column("memory", PlainText),
    Column("checkpoint", PlainText),
    Column("autoscaling", Json),
    Column("pool", PlainText),
    Column("labels", Json, nullable=False),
    Column("machine", Json),
    Column("progress", Json),
    Column("created_at", Seconds, nullable=False),
    Column("created_by", PlainText),
    Column("updated_at", Seconds, nullable=False),
    Column("deleted_at", Seconds),
    Index("jobs_name", "name", unique=True, sqlite_where=_NOT_DELETED, postgresql_where=_NOT_DELETED),
    Index("jobs_created", "created_at", "id"),
    Index("jobs_state", "state", "created_at", "id"),
)

versions = Table(
    "versions",
    metadata,
    _job_key(),
    Column("number", Integer, primary_key=True),
    Column("entry", PlainText, nullable=False),
    Column("digest", PlainText, nullable=False),
    Column("plan", Json),
    Column("settings", Json, nullable=False),
    Column("arguments", Json, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("created_by", PlainText),
)

# A spare driver is a run without a job.
runs = Table(
    "runs",
    metadata,
    Column("id", PlainText, primary_key=True),
    Column("job", PlainText, ForeignKey("jobs.id", ondelete="CASCADE")),
    Column("version", Integer),
    Column("attempt", Integer, nullable=False),
    Column("launcher", PlainText, nullable=False),
    Column("pid", BigInteger),
    Column("process_started", Seconds),
    Column("socket", PlainText),
    Column("token", BigInteger),
    Column("started_at", Seconds, nullable=False),
    Column("ended_at", Seconds),
    Column("outcome", PlainText),
    Column("exit_code", Integer),
    Column("error", Json),
    Index("runs_job", "job", "started_at"),
    Index("runs_ended", "ended_at"),
)

transitions = Table(
    "transitions",
    metadata,
    _job_key(),
    Column("seq", Integer, primary_key=True),
    Column("from_state", PlainText),
    Column("to_state", PlainText, nullable=False),
    Column("cause", PlainText, nullable=False),
    Column("at", Seconds, nullable=False),
)

commands = Table(
    "commands",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    _job(),
    Column("kind", PlainText, nullable=False),
    Column("arguments", Json, nullable=False),
    Column("requested_by", PlainText),
    Column("requested_at", Seconds, nullable=False),
    Column("state", PlainText, nullable=False),
    Column("message", PlainText),
    Column("done_at", Seconds),
    Index("commands_state", "state", "id"),
    Index("commands_job", "job", "id"),
    sqlite_autoincrement=True,
)

epochs = Table(
    "epochs",
    metadata,
    _job_key(),
    Column("number", BigInteger, primary_key=True),
    Column("run", PlainText),
    Column("at", Seconds, nullable=False),
    Column("rows_in", BigInteger, nullable=False),
    Column("rows_out", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    Column("duration_ms", Double, nullable=False),
    Column("phases", Json),
    Column("watermark", Seconds),
)

savepoints = Table(
    "savepoints",
    metadata,
    _job_key(),
    Column("name", PlainText, primary_key=True),
    Column("path", PlainText, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("state", PlainText, nullable=False),
    Column("version", Integer, nullable=False),
    Column("message", PlainText),
)

exceptions = Table(
    "exceptions",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    _job(),
    Column("at", Seconds, nullable=False),
    Column("type", PlainText, nullable=False),
    Column("message", PlainText, nullable=False),
    Column("hint", PlainText),
    Column("run", PlainText),
    Index("exceptions_job", "job", "id"),
    sqlite_autoincrement=True,
)

# Series of the manager itself have the job ''.
series = Table(
    "series",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("job", PlainText, nullable=False),
    Column("metric", PlainText, nullable=False),
    Column("node", PlainText, nullable=False),
    UniqueConstraint("job", "metric", "node", name="series_name"),
    sqlite_autoincrement=True,
)

points = Table(
    "points",
    metadata,
    Column("series", BigInteger, ForeignKey("series.id", ondelete="CASCADE"), primary_key=True),
    Column("resolution", Integer, primary_key=True),
    Column("bucket", BigInteger, primary_key=True),
    Column("minimum", Double, nullable=False),
    Column("maximum", Double, nullable=False),
    Column("total", Double, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("last", Double, nullable=False),
    Column("last_at", Seconds, nullable=False),
    Index("points_age", "resolution", "bucket"),
    sqlite_with_rowid=False,
)

leases = Table(
    "leases",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("holder", PlainText, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", Seconds, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", PlainText, primary_key=True),
    Column("name", PlainText, nullable=False),
    Column("role", PlainText, nullable=False),
    Column("digest", PlainText, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("created_by", PlainText),
    Column("expires_at", Seconds),
    Column("last_used_at", Seconds),
    Column("revoked", Boolean, nullable=False),
    UniqueConstraint("digest", name="tokens_digest"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", PlainText, primary_key=True),
    Column("value", PlainText, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("updated_at", Seconds, nullable=False),
    Column("updated_by", PlainText),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("at", Seconds, nullable=False),
    Column("who", PlainText, nullable=False),
    Column("role", PlainText),
    Column("action", PlainText, nullable=False),
    Column("target", PlainText, nullable=False),
    Column("address", PlainText),
    Column("outcome", PlainText, nullable=False),
    Column("detail", Json),
    Index("audit_at", "at"),
    sqlite_autoincrement=True,
)

nodes = Table(
    "nodes",
    metadata,
    _job_key(),
    Column("epoch", BigInteger, nullable=False),
    Column("at", Seconds, nullable=False),
    Column("nodes", Json, nullable=False),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", PlainText, primary_key=True),
    Column("digest", PlainText, nullable=False),
    Column("job", PlainText, nullable=False),
    Column("at", Seconds, nullable=False),
    Index("idempotency_keys_at", "at"),
)
