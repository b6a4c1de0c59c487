"""Queries over bounded rows of topics, and filters of messages: in a process of their own, in DuckDB, without Spark.

A query becomes the same nodes as in `ps.sql`, and expressions are translated by the rules of the native lane, so that
results are those of a job. What a user writes never reaches DuckDB as it is: only what these nodes are lowered to.
"""
