"""The logical plan of a pipeline, and the physical plan that is computed from it; no Spark is needed for either."""
