"""Consumer groups: membership, assignment and committed offsets, of the classic protocol and (`consumer`) KIP-848."""
