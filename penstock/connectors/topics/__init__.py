"""Topics of Kafka and of Penstock's own log, as a source and as a sink."""
