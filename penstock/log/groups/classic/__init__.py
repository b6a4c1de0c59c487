"""Consumer groups of the classic protocol (JoinGroup, SyncGroup): members elect a leader, and it assigns."""
