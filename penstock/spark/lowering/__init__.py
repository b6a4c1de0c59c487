"""From a plan to Spark: one lowering per node."""
