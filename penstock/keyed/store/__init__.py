"""Keyed state on disk: groups of rows by the hash of their key, in immutable sorted runs. See decision 018."""
