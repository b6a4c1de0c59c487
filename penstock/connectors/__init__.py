"""Sources and sinks; each says in its docstring what it guarantees.

Nothing is imported here: Spark's workers load the one connector that they need. `catalog.py` lists them all.
"""
