"""Results that follow their inputs by changes: Z-sets, deltas, the graph in process, circuits of views. No Spark."""
