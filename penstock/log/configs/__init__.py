"""Kafka's configs of topics, the broker and groups: definitions, validation, and what was changed at run time."""
