"""Tables of databases: PostgreSQL and SQLite."""
