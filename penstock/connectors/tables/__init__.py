"""Database tables (PostgreSQL, SQLite): a sink, and tables that streams are joined with."""
