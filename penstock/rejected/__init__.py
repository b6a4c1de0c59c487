"""Rejected rows: their schema, and their replay into the source that they came from."""
