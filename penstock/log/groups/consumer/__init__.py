"""Groups of the consumer protocol, KIP-848 (`group.protocol=consumer`): the broker assigns, members reconcile."""
