"""The store: all that the job manager knows, in SQLite or PostgreSQL. `store.Store` is the way in."""
