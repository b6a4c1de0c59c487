"""The native lane: what is upstream of the first shuffle, in DuckDB, inside the tasks that read."""
