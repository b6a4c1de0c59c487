"""Consumer groups: who reads which partition, and how far they have come."""
