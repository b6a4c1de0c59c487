"""Readers of a job's state: from the state store files themselves, or with Spark where that is needed."""
