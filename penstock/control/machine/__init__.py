"""The state machine of a job. Pure: no I/O, no clock, no random numbers of its own."""
