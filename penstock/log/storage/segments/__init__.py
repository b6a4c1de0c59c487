"""Segments: files of record batches with their indexes, read, appended to and scanned."""
