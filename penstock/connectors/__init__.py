"""Sources and sinks, one package per system; each class states its delivery guarantee in its docstring.

A new connector is one module here, one entry in `catalog` and one line in the contract tests.
"""
