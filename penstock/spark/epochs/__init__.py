"""What happens in an epoch: rows are computed, counted, staged and committed to sinks; watermarks advance."""
