"""The Kafka protocol: which requests are served, and how their bytes are read and written."""
