"""Benchmarks: not installed, run from a source checkout by `penstock bench`."""
