"""The newest events of a driver."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.driver.event_buffer import EventBuffer


# On a busy machine the first example can take seconds.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kinds=st.lists(st.sampled_from(["epoch", "running", "ended"])), size=st.integers(1, 8), after=st.integers(0, 30))
def test_a_buffer_keeps_the_newest_events_in_order_and_drops_epochs_first(
    kinds: list[str], size: int, after: int
) -> None:
    buffer = EventBuffer(size)
    for kind in kinds:
        buffer.add("j", kind, 0.0, {})
    kept = [event["seq"] for event in buffer.after(0)]
    others = [number for number, kind in enumerate(kinds, 1) if kind != "epoch"]
    assert buffer.newest == len(kinds)
    assert len(kept) == min(size, len(kinds))
    assert kept == sorted(kept)
    assert set(others[-size:]) <= set(kept) or len(others) > size
    assert [event["seq"] for event in buffer.after(after)] == [seq for seq in kept if seq > after]


def test_only_the_newest_epoch_of_a_job_has_its_nodes() -> None:
    buffer = EventBuffer()
    for number in range(3):
        buffer.add("a", "epoch", 1.0, {"epoch": number, "nodes": {"filter": {"in": number}}})
    buffer.add("b", "epoch", 1.0, {"epoch": 0, "nodes": {}})
    assert ["nodes" in event for event in buffer.after(0)] == [False, False, True, True]
