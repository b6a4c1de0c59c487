"""Series that are rolled up as they are written, compared with a plain computation over all samples."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.control.store.repositories import series
from penstock.control.store.repositories.series import Point
from penstock.control.store.rollup import RETENTION, Sample, SeriesName, rolled_up
from penstock.control.store.store import Store
from tests.control.store.clocks import SetClock

START = 1_800_000_000
_numbers = count()

# Whole numbers, so that sums do not depend on their order; times within two hours.
values = st.integers(-1_000, 1_000).map(float)
seconds = st.integers(0, 7_200_000).map(lambda ms: START + ms / 1_000)
points = st.tuples(st.sampled_from(["lag", "rate"]), st.sampled_from(["", "vwap"]), seconds, values)


def recomputed(samples: list[Sample], resolution: int) -> dict[tuple[str, str], list[Point]]:
    found: dict[tuple[str, str], list[Point]] = {}
    for name in sorted({(sample.metric, sample.node) for sample in samples}):
        mine = [sample for sample in samples if (sample.metric, sample.node) == name]
        for start in sorted({int(sample.at // resolution) * resolution for sample in mine}):
            inside = [sample for sample in mine if start <= sample.at < start + resolution]
            newest = max(range(len(inside)), key=lambda place: (inside[place].at, place))
            numbers = [sample.value for sample in inside]
            point = Point(start, min(numbers), max(numbers), sum(numbers), len(numbers), inside[newest].value)
            found.setdefault(name, []).append(point)
    return found


@given(batches=st.lists(st.lists(points, max_size=12), max_size=6))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_series_is_the_same_however_its_samples_were_batched(
    store: Store, batches: list[list[tuple[str, str, float, float]]]
) -> None:
    job = f"job {next(_numbers)}"
    samples = [[Sample(job, metric, at, value, node) for metric, node, at, value in batch] for batch in batches]
    for batch in samples:
        assert store.series.record(batch) == 0
    everything = [sample for batch in samples for sample in batch]
    for resolution in RETENTION:
        stored = store.series.read(job, start=START, end=START + 7_200, resolution=resolution)
        found = {(each.metric, each.node): list(each.points) for each in stored}
        assert found == recomputed(everything, resolution)


@given(st.lists(st.tuples(seconds, values), min_size=1, max_size=20), st.integers(0, 40 * 86_400))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_buckets_are_kept_for_their_retention(store: Store, samples: list[tuple[float, float]], later: int) -> None:
    job, now = f"job {next(_numbers)}", START + later
    store.series.record(Sample(job, "lag", at, value) for at, value in samples)
    store.series.prune(now)
    left = False
    for resolution, kept in RETENTION.items():
        starts = {int(at // resolution) * resolution for at, _ in samples}
        found = store.series.read(job, start=0, end=START + 10_000, resolution=resolution)
        expected = sorted(start for start in starts if start + resolution > now - kept)
        assert [point.at for each in found for point in each.points] == expected
        left = left or bool(expected)
    assert bool(store.series.names(job)) == left


def test_the_size_of_a_series_is_bounded_whatever_is_written(store: Store, clock: SetClock) -> None:
    """A sample every ten minutes for two months, and then one every second for two minutes."""
    clock.now = START
    for hour in range(0, 60 * 24, 48):
        start = clock.now + hour * 3_600
        store.series.record(Sample("a", "lag", start + minute * 600, 1.0) for minute in range(48 * 6))
    clock.advance(60 * 86_400)
    store.series.record(Sample("a", "lag", clock.now + second, 1.0) for second in range(120))
    store.series.prune(clock.now)
    for resolution, kept in RETENTION.items():
        found = store.series.read("a", start=0, end=clock.now + 200, resolution=resolution)
        assert sum(len(each.points) for each in found) <= kept / resolution + 1 + 120 / resolution + 1


def test_a_job_has_a_bounded_number_of_series(store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_PER_JOB", 3)
    samples = [Sample("a", "lag", clock.now, 1.0, f"node {number}") for number in range(5)]
    assert store.series.record(samples) == 2
    assert store.series.record([Sample("b", "lag", clock.now, 1.0)]) == 0
    assert store.series.record(samples) == 2
    assert store.series.names("a") == [SeriesName("a", "lag", f"node {number}") for number in range(3)]
    (first, *_) = store.series.read("a")
    assert first.points[0].count == 2


def test_the_default_is_the_last_hour_in_ten_seconds(store: Store, clock: SetClock) -> None:
    store.series.record([Sample("a", "lag", clock.now - ago, float(ago)) for ago in (10, 100, 3_500, 3_700)])
    (found,) = store.series.read("a", ["lag", "other"])
    assert found.resolution == 10
    assert [point.last for point in found.points] == [3_500.0, 100.0, 10.0]
    assert found.points[0].mean == 3_500.0
    assert store.series.read("a", ["other"]) == store.series.read("b") == []


def test_a_longer_range_is_read_in_coarser_buckets(store: Store, clock: SetClock) -> None:
    store.series.record([Sample("a", "lag", clock.now, 1.0)])
    for hours, resolution in ((1, 10), (2, 60), (24, 60), (25, 600), (10_000, 600)):
        (found,) = store.series.read("a", start=clock.now - hours * 3_600)
        assert found.resolution == resolution


def test_values_that_are_not_finite_are_left_out() -> None:
    odd = [Sample("a", "lag", 1.0, value) for value in (float("nan"), float("inf"), -1e308)]
    assert rolled_up([*odd, Sample("a", "lag", float("nan"), 1.0), Sample("a", "lag", -1.0, 1.0)]) == {}


def test_a_removed_job_has_no_series(store: Store, clock: SetClock) -> None:
    store.series.record([Sample(job, "lag", clock.now, 1.0) for job in ("a", "b", "")])
    store.series.remove("a")
    assert store.series.read("a") == []
    assert store.series.names("")
    assert store.series.read("b")


def test_the_newest_values_of_a_metric_are_read_for_all_jobs_at_once(store: Store) -> None:
    samples = [Sample(job, "rate", START + 5 * moment, float(moment)) for job in ("one", "two") for moment in range(4)]
    store.series.record([*samples, Sample("one", "rate", START, 9.0, "node"), Sample("one", "lag", START, 9.0)])
    found = store.series.latest("rate", start=START, resolution=10)
    assert found == {job: [(START, 1.0), (START + 10, 3.0)] for job in ("one", "two")}
    assert store.series.latest("rate", start=START + 10, resolution=10)["one"] == [(START + 10, 3.0)]
