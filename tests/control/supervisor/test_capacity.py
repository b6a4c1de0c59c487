"""A job that does not fit says what it needs and what is free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.supervisor.capacity import GIB, NOTHING, Capacity, Share

SHARES = st.builds(Share, st.floats(0.1, 8), st.integers(1, 8 * GIB))


def test_a_job_that_needs_more_memory_than_is_free_does_not_fit() -> None:
    refusal = Capacity(2, 4 * GIB).refusal(Share(1, 2 * GIB), [Share(1, 3 * GIB)])
    assert refusal == "needs 2.0 GiB of memory, and 1.0 of 4.0 GiB are free"


def test_a_job_that_needs_more_cores_than_are_promised_does_not_fit() -> None:
    refusal = Capacity(2, 64 * GIB, overcommit=1).refusal(Share(2, GIB), [Share(1, GIB)])
    assert refusal == "needs 2 cores, and 1 of 2 are free"


@given(SHARES, st.lists(SHARES, max_size=5))
def test_what_fits_never_exceeds_the_capacity(wanted: Share, used: list[Share]) -> None:
    capacity = Capacity(4, 16 * GIB)
    if capacity.refusal(wanted, used) is None:
        whole = sum([wanted, *used], NOTHING)
        assert whole.memory <= capacity.memory
        assert whole.cores <= capacity.cores * capacity.overcommit + 1e-6
