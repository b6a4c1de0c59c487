"""Who may speak to the log, and how much."""
