"""Keyed operators on Arrow: process functions and deduplication, with state as bytes. Independent of Spark."""
