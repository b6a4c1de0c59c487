"""The native lane: what stands before the first shuffle, in DuckDB, inside the tasks that read."""
