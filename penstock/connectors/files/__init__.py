"""Files: a source over paths, folders and globs, a sink with staged commits, and standard input."""
