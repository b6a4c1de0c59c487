"""Alembic's migrations, applied by `schema_version.migrate`. A migration that was released is never edited."""
