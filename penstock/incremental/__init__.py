"""Results that follow their inputs by deltas: Z-sets, deltas of keys, and the graph in process. No Spark."""
