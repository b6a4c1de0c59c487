"""What the log reports about itself: Prometheus metrics, and the memory of the process."""
