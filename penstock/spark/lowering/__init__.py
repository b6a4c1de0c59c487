"""From a plan to Spark DataFrames: one lowering per node."""
