"""A relation, maintained by changes: each operator takes changes of its inputs and gives changes of its result."""
