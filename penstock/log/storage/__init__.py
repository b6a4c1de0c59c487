"""The storage engine: topics, partitions and segments in the data folder, their validation, compaction and recovery."""
