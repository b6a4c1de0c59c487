"""Formats: bytes to Arrow batches and back. Parsers report every bad row; writers produce what the parsers read."""
