"""The incremental graph in process: keyed collections that follow their leaves, computed on NumPy arrays."""
