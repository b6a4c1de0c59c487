"""A job's checkpoint: its files and lease; savepoints, integrity checks, repair, migration and readers of state."""
