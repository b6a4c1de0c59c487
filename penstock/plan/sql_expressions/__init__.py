"""Spark SQL expressions: parsed, checked and typed while a pipeline is built."""
