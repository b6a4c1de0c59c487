"""The json format, one document per line: decoder, fast path for a common layout, and writer."""
