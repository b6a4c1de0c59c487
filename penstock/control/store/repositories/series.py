"""Series of metrics for charts: rolled up as they are written, and bounded in number and age."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Insert, case, delete, select

from penstock.control.store.repositories.repository import Repository, insert_into
from penstock.control.store.rollup import RETENTION, Sample, SeriesName, bucket_of, finest, rolled_up
from penstock.control.store.tables import points, series

# With their retention this bounds what a job can store: a metric per key of the data would have no bound.
SERIES_PER_JOB = 500


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured within the bucket of time that starts `at`."""

    at: float
    minimum: float
    maximum: float
    total: float
    count: int
    last: float

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return self.total / self.count


@dataclass(frozen=True)
class Series:
    """One metric of a job, or of one node of it, over time."""

    metric: str
    node: str
    resolution: int
    points: tuple[Point, ...]


class SeriesStore(Repository):
    """Series by job, metric and node."""

    def record(self, samples: Iterable[Sample]) -> int:
        """Add samples to their buckets, all in one statement; return how many series were left out by the bound."""
        buckets = rolled_up(samples)
        names = {key.name for key in buckets}
        if not names:
            return 0
        with self._writing() as connection:
            ids = _ids(connection, names)
            # In one order everywhere, so that two writers wait for each other instead of blocking each other.
            rows = sorted(
                ({"series": ids[key.name], "resolution": key.resolution, "bucket": key.bucket, **asdict(bucket)}
                 for key, bucket in buckets.items() if key.name in ids),
                key=lambda row: (row["series"], row["resolution"], row["bucket"]),
            )  # fmt: skip
            if rows:
                connection.execute(_upsert(connection), rows)
        return len(names - ids.keys())

    def read(
        self,
        job: str,
        metrics: Collection[str] = (),
        *,
        start: float | None = None,
        end: float | None = None,
        resolution: int | None = None,
    ) -> list[Series]:
        """Return series of a job, of the last hour by default; the default resolution is the finest for the range."""
        now = self._clock()
        end = now if end is None else end
        start = end - 3_600 if start is None else start
        resolution = resolution or finest(start, now)
        query = (
            select(series.c.metric, series.c.node, points)
            .join(points, points.c.series == series.c.id)
            .where(series.c.job == job, points.c.resolution == resolution)
            .where(points.c.bucket >= bucket_of(start, resolution), points.c.bucket <= end)
            .order_by(series.c.metric, series.c.node, points.c.series, points.c.bucket)
        )
        if metrics:
            query = query.where(series.c.metric.in_(metrics))
        with self._reading() as connection:
            return list(_series(connection.execute(query).all(), resolution))

    def latest(self, metric: str, *, start: float, resolution: int) -> dict[str, list[tuple[float, float]]]:
        """Return the last value of each bucket of a metric since a time, of all jobs that have it."""
        query = (
            select(series.c.job, points.c.bucket, points.c.last)
            .join(points, points.c.series == series.c.id)
            .where(series.c.metric == metric, series.c.node == "", points.c.resolution == resolution)
            .where(points.c.bucket >= bucket_of(start, resolution))
            .order_by(series.c.job, points.c.bucket)
        )
        found: dict[str, list[tuple[float, float]]] = {}
        with self._reading() as connection:
            for job, bucket, last in connection.execute(query):
                found.setdefault(job, []).append((float(bucket), last))
        return found

    def names(self, job: str) -> list[SeriesName]:
        """Return the series of a job."""
        query = select(series.c.job, series.c.metric, series.c.node).where(series.c.job == job)
        with self._reading() as connection:
            return [SeriesName(*row) for row in connection.execute(query.order_by(series.c.metric, series.c.node))]

    def remove(self, job: str) -> None:
        """Delete all series of a job."""
        with self._writing() as connection:
            connection.execute(delete(series).where(series.c.job == job))

    def prune(self, now: float) -> int:
        """Delete buckets that are past their retention, and series without any; return how many buckets."""
        with self._writing() as connection:
            removed = 0
            for resolution, kept in RETENTION.items():
                ended = points.c.bucket <= now - kept - resolution
                removed += connection.execute(delete(points).where(points.c.resolution == resolution, ended)).rowcount
            used = select(points.c.series).where(points.c.series == series.c.id).exists()
            connection.execute(delete(series).where(~used))
        return removed


def _ids(connection: Connection, names: set[SeriesName]) -> dict[SeriesName, int]:
    """Return the ids of series, created where they are new and the job has not too many."""
    jobs = sorted({name.job for name in names})
    known = _known(connection, jobs)
    if names <= known.keys():
        return known
    missing: list[dict[str, str]] = []
    for job in jobs:
        room = SERIES_PER_JOB - sum(name.job == job for name in known)
        new = sorted(name for name in names if name.job == job and name not in known)
        missing += [name._asdict() for name in new[: max(room, 0)]]
    if missing:
        connection.execute(insert_into(connection, series).on_conflict_do_nothing(), missing)
        known = _known(connection, jobs)
    return {name: known[name] for name in names if name in known}


def _known(connection: Connection, jobs: Sequence[str]) -> dict[SeriesName, int]:
    query = select(series.c.job, series.c.metric, series.c.node, series.c.id).where(series.c.job.in_(jobs))
    return {SeriesName(*row[:3]): row[3] for row in connection.execute(query)}


def _upsert(connection: Connection) -> Insert:
    query = insert_into(connection, points)
    new, old = query.excluded, points.c
    is_newer = new.last_at >= old.last_at
    merged: dict[str, Any] = {
        "minimum": case((new.minimum < old.minimum, new.minimum), else_=old.minimum),
        "maximum": case((new.maximum > old.maximum, new.maximum), else_=old.maximum),
        "total": old.total + new.total,
        "count": old["count"] + new["count"],
        "last": case((is_newer, new.last), else_=old.last),
        "last_at": case((is_newer, new.last_at), else_=old.last_at),
    }
    return query.on_conflict_do_update(index_elements=[old.series, old.resolution, old.bucket], set_=merged)


def _series(rows: Sequence[Any], resolution: int) -> Iterator[Series]:
    for (metric, node), found in groupby(rows, key=lambda row: (row.metric, row.node)):
        values = (row._mapping for row in found)
        read = tuple(
            Point(row["bucket"], row["minimum"], row["maximum"], row["total"], row["count"], row["last"])
            for row in values
        )
        yield Series(metric, node, resolution, read)
