"""Transactions over partitions and group offsets: the coordinator and the state machine of a transactional id."""
