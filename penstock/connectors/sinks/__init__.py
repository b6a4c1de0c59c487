"""Small sinks: memory, terminal, a Python function, a webhook."""
