"""The operators of a logical plan: one frozen class each, checked when it is built."""
