"""Kafka's record format, codecs and wire primitives. The log and the topic connectors share them."""
