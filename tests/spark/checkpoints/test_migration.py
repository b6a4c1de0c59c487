"""A changed job continues from its checkpoint: state is migrated where possible, and never changes its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

import penstock as ps
from penstock.errors import BadValue, CheckpointMismatch, SinkFailed
from penstock.plan.changes import Changes
from penstock.settings import Settings
from penstock.spark.checkpoints.checkpoint import Checkpoint
from penstock.spark.checkpoints.history import History
from penstock.spark.checkpoints.identity import data_folder
from penstock.spark.checkpoints.layout import QueryLayout, read_layout
from penstock.spark.checkpoints.migration import OldQuery, _QueryMigration
from penstock.spark.runs.micro_batch import MicroBatchRun
from penstock.storage.folders import folder

SCHEMA = "k string, v int, x double, ts timestamp"


@dataclass
class Job:
    """A job over files, whose plan changes between its runs; each run gets ten seconds more of input."""

    path: Path
    settings: Settings
    runs: int = 0

    def rows(self) -> ps.Stream:
        return ps.read_files(str(self.path / "in"), format="csv", schema=SCHEMA).named("rows")

    def out(self, stream: ps.Stream, name: str, called: str | None = None) -> Any:
        return stream.to(ps.files(str(self.path / name))).named(called or name)

    def run(self, *outputs: Any, until: Any = "drained", allow_drop: Any = (), **settings: Any) -> Any:
        (self.path / "in").mkdir(exist_ok=True)
        lines = [
            f"{'ab'[s % 2]},{s},{s}.5,2026-01-01T00:00:{s:02}Z" for s in range(self.runs * 10, self.runs * 10 + 10)
        ]
        (self.path / "in" / f"{self.runs}.csv").write_text("\n".join(lines) + "\n")
        self.runs += 1
        running = ps.Pipeline("job", *outputs).start(
            until=until,
            checkpoint=self.path / "c",
            settings=replace(self.settings, **settings),
            allow_drop=allow_drop,
        )
        running.wait()
        return running

    def wrote(self, name: str, what: str = "*") -> list[tuple[Any, ...]]:
        return duckdb.sql(f"SELECT {what} FROM read_parquet('{self.path}/{name}/*.parquet') ORDER BY ALL").fetchall()


@pytest.fixture
def job(tmp_path: Path, settings: Settings) -> Job:
    return Job(tmp_path, settings)


def summed(rows: ps.Stream, size: str = "30s", **more: str) -> ps.Stream:
    windows = rows.event_time("ts", "1s").key_by("k").window(ps.tumbling(size))
    return windows.aggregate(**{"n": "count(*)", "total": "sum(v)"} | more)


def expected(seconds: Iterable[int], size: int = 30) -> list[tuple[str, int, int]]:
    groups: dict[tuple[str, int], list[int]] = {}
    for second in seconds:
        groups.setdefault(("ab"[second % 2], second // size), []).append(second)
    return sorted((key, len(found), sum(found)) for (key, _), found in groups.items())


# In short they come; sinks go in `test_a_new_generation...`, and state goes in `test_a_changed_window...`.
@pytest.mark.parametrize("go", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_branches_and_sinks_come_and_go_and_the_state_stays(go: bool, job: Job) -> None:
    rows = job.rows()
    first = job.run(job.out(summed(rows), "sums"))
    assert first.notice is None
    # The event time moves to Spark's lane, the sums get a second operator, and so does a node without a past.
    sums = summed(rows)
    unique = rows.event_time("ts", "1s").deduplicate("k", within="20s")
    second = job.run(
        *(job.out(sums, "sums", "renamed"), job.out(sums.filter("total > 200"), "large")),
        *(job.out(rows.filter("v >= 15"), "raw"), job.out(unique, "unique")),
        until="drained" if go else "ended",
    )
    assert "state of 'aggregate' kept, state of 'deduplicate' starts empty" in second.notice
    assert "sink 'renamed' renamed from 'sums'" in second.notice
    begun = first.report().epochs
    assert second.notice.endswith(f"; this applies from epoch {begun} on; epochs continue in generation 2")
    if go:
        third = job.run(job.out(summed(rows.filter("v != 25")), "sums"), allow_drop=["deduplicate"], until="ended")
        assert "epochs continue in generation 3" in third.notice
    assert job.wrote("sums", "k, n, total") == expected([s for s in range(10 * job.runs) if s != 25])
    assert job.wrote("raw", "v") == [(v,) for v in range(15, 20)]
    assert [k for (k,) in job.wrote("unique", "k")] == ["a", "b"]
    generations = sorted(path.name for path in (job.path / "c" / "generations").iterdir())
    assert generations == (["2", "3"] if go else ["2"])
    assert not go or not (job.path / "c" / "queries").exists()


def test_a_changed_window_is_refused_with_a_table_and_accepted_by_name(job: Job) -> None:
    rows = job.rows()
    job.run(job.out(summed(rows), "sums"))
    with pytest.raises(CheckpointMismatch) as refused:
        job.run(job.out(summed(rows, "10s"), "sums"))
    assert "window: tumbling(30s) -> tumbling(10s)" in str(refused.value)
    assert "--allow-drop aggregate" in str(refused.value)
    with pytest.raises(CheckpointMismatch, match='only state="rocksdb"'):
        job.run(job.out(summed(rows), "sums"), state_partitions=3)
    with pytest.raises(BadValue, match="did you mean 'aggregate'"):
        job.run(job.out(summed(rows, "10s"), "sums"), allow_drop=["agregate"])
    job.run(job.out(summed(rows, "10s"), "sums"), allow_drop=["aggregate"], until="ended")
    # The first ten seconds were in the state that was dropped, and are not read again.
    assert job.wrote("sums", "k, n, total") == expected(range(10, 50), 10)
    assert data_folder(folder(job.path / "c")).url.endswith("generations/2")


@pytest.mark.slow
def test_an_average_of_what_the_state_holds_keeps_it_and_so_does_another_lane(job: Job) -> None:
    rows = job.rows()
    job.run(job.out(summed(rows, seen="count(v)"), "sums"))
    second = job.run(job.out(summed(rows, mean="avg(v)", seen="count(v)"), "sums"), until="ended", lane="spark")
    assert "state of 'aggregate' kept; the event time moved to the other lane" in second.notice
    assert job.wrote("sums", "k, n, total, mean") == [("a", 10, 90, 9.0), ("b", 10, 100, 10.0)]


def jvms() -> list[int]:
    return sorted(child.pid for child in psutil.Process().children() if child.name() == "java")


# In short both change in one run, on the session that all tests share: the notice is about the state alone.
@pytest.mark.parametrize("one_core", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_state_is_repartitioned_on_rocksdb_and_parallelism_changes_freely(one_core: bool, job: Job) -> None:
    out = job.out(summed(job.rows()), "sums")
    job.run(out, state="rocksdb")
    less: dict[str, Any] = {"parallelism": 1, "spark_master": None if one_core else job.settings.master}
    if one_core:
        before = jvms()
        same = job.run(out, state="rocksdb", **less)
        assert same.notice is None
        assert jvms() == before, "the session of one core runs in the JVM of the one before it"
    again = job.run(out, state="rocksdb", **less, state_partitions=3, until="ended")
    assert again.notice == "the state has 3 partitions now; epochs continue in generation 2"
    assert job.wrote("sums", "k, n, total") == expected(range(10 * job.runs))
    state = data_folder(folder(job.path / "c")) / "queries" / "final" / "state" / "0"
    assert [name for name in state.names() if name.isdigit()] == ["0", "1", "2"]


@pytest.mark.slow
def test_an_updating_branch_starts_after_the_last_epoch_of_the_final_one(job: Job) -> None:
    rows = job.rows()
    unique = rows.event_time("ts", "1s").deduplicate("v", within="30s")
    job.run(job.out(unique, "unique"), state="rocksdb")
    seen: list[dict[str, Any]] = []
    counts = unique.key_by("k").aggregate(n="count(*)")
    sink = ps.callback(lambda epoch, table: seen.extend(table.to_pylist()))
    second = job.run(job.out(unique, "unique"), counts.to(sink), state="rocksdb")
    assert "state of 'deduplicate' kept, state of 'aggregate' starts empty" in second.notice
    assert sorted((row["k"], row["n"]) for row in seen) == [("a", 5), ("b", 5)]
    assert job.wrote("unique", "v") == [(v,) for v in range(20)]


# In short the old version is the first one.
@pytest.mark.parametrize("earlier", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_epoch_that_the_old_version_started_is_finished_by_the_new_one(earlier: bool, job: Job) -> None:
    rows = job.rows()

    def broken(epoch: Any, table: Any) -> None:
        raise RuntimeError("no")

    sums = job.out(summed(rows), "sums")
    if earlier:
        job.run(sums, job.out(rows, "raw"))
    with pytest.raises(SinkFailed):
        job.run(sums, job.out(rows, "raw"), rows.to(ps.callback(broken)).named("broken"))
    with pytest.raises(CheckpointMismatch, match="was started by the old version of 'job' and not finished"):
        job.run(sums, job.out(rows, "raw", "renamed"))
    job.run(sums, job.out(rows, "raw"), until="ended")
    assert job.wrote("raw", "v") == [(v,) for v in range(10 * job.runs)]
    assert job.wrote("sums", "k, n, total") == expected(range(10 * job.runs))


def test_an_epoch_that_several_versions_could_not_finish_is_known_to_the_sinks_by_its_first(job: Job) -> None:
    """Each version reads other sources, so Spark's offsets of the epoch have other lines."""
    other = ps.from_items([{"v": 1}], "v int").named("other")
    raw = job.out(job.rows(), "raw")
    with pytest.raises(SinkFailed):
        job.run(raw, job.rows().to(ps.callback(_broken)).named("broken"))
    with pytest.raises(SinkFailed):
        job.run(raw, job.out(other, "others"), job.rows().to(ps.callback(_broken_too)).named("still-broken"))
    job.run(raw, job.out(other, "others"), until="ended")
    assert job.wrote("raw", "v") == [(v,) for v in range(10 * job.runs)]
    assert job.wrote("others", "v") == [(1,)]


def test_a_sink_that_moves_while_it_may_have_an_unfinished_epoch_is_refused(job: Job) -> None:
    with pytest.raises(SinkFailed):
        job.run(job.out(job.rows(), "raw"), job.rows().to(ps.callback(_broken)).named("broken"))
    moved = job.out(job.rows(), "elsewhere", "raw")
    with pytest.raises(CheckpointMismatch, match="sink 'raw' may have some of its rows"):
        job.run(moved)
    job.run(job.out(job.rows(), "raw"))
    job.run(moved, until="ended")
    read = job.wrote("raw", "v") + job.wrote("elsewhere", "v")
    assert read == [(v,) for v in range(10 * job.runs)]


def _broken(epoch: Any, table: Any) -> None:
    message = "no"
    raise RuntimeError(message)


def _broken_too(epoch: Any, table: Any) -> None:
    message = "not this either"
    raise RuntimeError(message)


MARKED = '{"0": 7, "@ticks": %d}'
LINES = {
    "both read them": (["one", "two"], [MARKED % 3, MARKED % 2], [2, 2]),
    "one has read none": (["one", "two"], [MARKED % 3, MARKED % 0], [None, None]),
    "one does not read them": (["one", "two"], [MARKED % 3, '{"0": 7}'], [3, 3]),
    "Spark's connector and timers": (
        ["one", "kafka", "wakeups"],
        [MARKED % 3, '{"t": {"0": 7}}', '{"0": 7}'],
        [3, None, None],
    ),
}


@pytest.mark.parametrize("what", LINES)
def test_no_source_skips_a_declared_time_that_it_has_not_read(what: str, tmp_path: Path) -> None:
    """A time that is declared again does no harm; one that a source never gets leaves windows open."""
    sources, lines, expected = LINES[what]
    old = folder(tmp_path)
    old.write("offsets/0", "\n".join(["v1", "{}", *lines]).encode())
    layout = QueryLayout(sources, [], [])
    parts = (OldQuery(History(old), layout, 0), old / "new", (old, old), layout, Changes((), {}), None, None, False)
    written = _QueryMigration(*parts)._offsets(0).decode().splitlines()[2:]  # type: ignore[arg-type]
    assert [json.loads(line).get("@ticks") for line in written] == expected


def test_a_new_generation_is_never_current_with_the_layout_of_the_old_plan(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = job.out(summed(job.rows()), "sums")
    job.run(sums)
    with monkeypatch.context() as dying:
        dying.setattr(MicroBatchRun, "_write_layout", _die)
        with pytest.raises(KeyboardInterrupt):
            job.run(sums, job.out(job.rows(), "raw"))
    (query,) = read_layout(data_folder(folder(job.path / "c"))).queries.values()
    assert sorted(query.sinks) == ["raw", "sums"]
    job.run(sums, until="ended")
    assert job.wrote("sums", "k, n, total") == expected(range(30))


def _die(run: MicroBatchRun) -> None:
    raise KeyboardInterrupt


def test_an_incomplete_generation_after_a_crash_is_removed_at_the_next_start(tmp_path: Path) -> None:
    root = folder(tmp_path)

    def opened(condition: str) -> Checkpoint:
        rows = ps.from_items([], "v int").named("rows").filter(condition)
        return Checkpoint(tmp_path, "job", ps.Pipeline("job", rows.to(ps.files("out"))).graph)

    opened("v > 1").close()
    root.write("sources/rows/note", b"kept")
    half = opened("v > 2")
    assert half.folder.read("sources/rows/note") == b"kept"
    assert half.folder.url == (root / "generations" / "2").url
    half.close()
    same = opened("v > 1")
    assert (same.folder.url, (root / "generations").names()) == (root.url, [])
    same.close()
