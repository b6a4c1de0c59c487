"""Autoscaling: which parallelism a job should have. Pure: decisions over samples of metrics, no I/O and no clock."""
