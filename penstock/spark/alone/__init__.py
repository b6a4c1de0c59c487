"""Queries that Spark runs alone, by its own Kafka connector."""
