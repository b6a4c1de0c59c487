"""The Kafka protocol: the APIs that are served, and the encoding of requests and replies."""
