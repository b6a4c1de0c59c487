"""Runs: a pipeline from its checkpoint until it is stopped, drained or ended, in micro-batches or in real time."""
