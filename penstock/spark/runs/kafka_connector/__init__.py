"""Runs whose queries read and write topics through the Kafka connector of Spark, without Python."""
