"""Consumer groups of the protocol of KIP-848 (`group.protocol=consumer`): the broker assigns, members reconcile."""
