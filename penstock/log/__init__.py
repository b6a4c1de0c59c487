"""The event log: a durable, single-node broker that speaks the Kafka protocol. Knows no pipelines."""
