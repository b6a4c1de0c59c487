"""Transactions over partitions and group offsets: who may write, how each one ends."""
