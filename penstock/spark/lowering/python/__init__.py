"""Python functions in Spark: over rows, batches, groups and keys."""
