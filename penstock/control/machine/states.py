"""The states of a job, as in Flink, and the pairs of states that may follow each other.

    CREATED --fits--> STARTING --> RUNNING --until is reached--> FINISHED
       ^                 |            |
       |                 +--fails-----+--> FAILING --> RESTARTING --> STARTING
       |                 |            |        +--> FAILED
       +--shutdown, -----+--stop------+--> STOPPING --> STOPPED
          change         +--cancel----+--> CANCELLING --> CANCELED

A job that waits for cores or memory is CREATED. FAILING waits until the driver's process has ended, so that no job
ever runs twice.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    RESTARTING = "RESTARTING"
    FAILED = "FAILED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"

    @property
    def is_final(self) -> bool:
        """Whether the job stays in this state until a user restarts it."""
        return self in FINAL

    @property
    def is_active(self) -> bool:
        """Whether the job manager still has something to do for the job."""
        return self not in FINAL

    @property
    def has_run(self) -> bool:
        """Whether a driver runs, or may run, in this state."""
        return self in LIVE


FINAL = frozenset({JobState.FAILED, JobState.STOPPED, JobState.CANCELED, JobState.FINISHED})
ACTIVE = frozenset(JobState) - FINAL
LIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.FAILING, JobState.STOPPING, JobState.CANCELLING})
# Without a driver, but not final: waiting for cores and memory, or for the delay of the restart policy.
WAITING = ACTIVE - LIVE

# State -> the states that may follow it. The machine is tested against this table.
ALLOWED: dict[JobState, frozenset[JobState]] = {
    JobState.CREATED: frozenset({JobState.STARTING, JobState.STOPPED, JobState.CANCELED}),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.FAILING, JobState.STOPPING, JobState.CANCELLING}),
    JobState.RUNNING: frozenset({JobState.FINISHED, JobState.FAILING, JobState.STOPPING, JobState.CANCELLING}),
    JobState.FAILING: frozenset(
        {JobState.RESTARTING, JobState.FAILED, JobState.FINISHED, JobState.STOPPING, JobState.CANCELLING}
    ),
    JobState.RESTARTING: frozenset({JobState.STARTING, JobState.CREATED, JobState.STOPPED, JobState.CANCELED}),
    JobState.STOPPING: frozenset(
        {JobState.STOPPED, JobState.CREATED, JobState.FINISHED, JobState.FAILING, JobState.CANCELLING}
    ),
    JobState.CANCELLING: frozenset({JobState.CANCELED, JobState.FINISHED}),
    **{state: frozenset({JobState.CREATED}) for state in FINAL},
}
