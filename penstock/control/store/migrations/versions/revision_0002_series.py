"""Series of metrics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "series",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.UniqueConstraint("job", "metric", "node", name="series_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "points",
        sa.Column("series", sa.BigInteger, sa.ForeignKey("series.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("resolution", sa.Integer, primary_key=True),
        sa.Column("bucket", sa.BigInteger, primary_key=True),
        sa.Column("minimum", sa.Double, nullable=False),
        sa.Column("maximum", sa.Double, nullable=False),
        sa.Column("total", sa.Double, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("last", sa.Double, nullable=False),
        sa.Column("last_at", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("points_age", "points", ["resolution", "bucket"])
