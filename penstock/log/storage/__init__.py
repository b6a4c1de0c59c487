"""What is kept on disk: topics, partitions, segments, batches."""
