"""Promise: what a killed epoch has written of its state is not used once the epoch has run again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import penstock as ps
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.epochs.result_staging import ResultStaging
from penstock.storage.folders import folder
from tests.spark.checkpoints.damaged_jobs import cut, reported, uncommit_newest
from tests.spark.stateful_jobs import expected, feed, job, on, written

FED = 2


def as_before(path: Path) -> None:
    """Give a file of state the content of the version before, as another attempt may have written another one."""
    version, _, kind = path.name.partition(".")
    before = path.with_name(f"{int(version) - 1}.{kind}")
    shutil.copy(before, path)
    shutil.copy(before.with_name(f".{before.name}.crc"), path.with_name(f".{path.name}.crc"))


@pytest.mark.parametrize("state", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", [cut, as_before])
def test_state_of_an_epoch_that_is_not_committed_is_written_again(
    damage: Callable[[Path], None], state: str, settings: Settings, tmp_path: Path
) -> None:
    checkpoint, chosen = tmp_path / "checkpoint", on(settings, state)
    run = job(tmp_path).start(checkpoint=checkpoint, settings=chosen)
    for number in range(FED):
        feed(tmp_path / "in", number)
        run.process_available()
    run.stop()
    run.wait()
    uncommit_newest(checkpoint)
    query = checkpoint / "queries" / "final"
    newest = max(int(path.name) for path in (query / "offsets").glob("[0-9]*"))
    left = [path for path in query.glob(f"state/0/*/{newest + 1}.*") if path.suffix in (".delta", ".changelog", ".zip")]
    assert left
    for path in left:
        damage(path)
    if damage is cut:
        said = inspect(folder(checkpoint)).queries["final"].next_run
        assert said == "the next run writes the state of its first epoch again"
    feed(tmp_path / "in", FED)
    job(tmp_path).run(until="drained", checkpoint=checkpoint, settings=chosen)
    assert reported(checkpoint) == ""
    job(tmp_path).run(until="ended", checkpoint=checkpoint, settings=chosen)
    assert written(tmp_path / "out") == expected(FED + 1)


def summed(data: Path) -> ps.Pipeline:
    """What a function answers, which is never the same, in one sink, and its sums in another."""
    (data / "in").mkdir(parents=True, exist_ok=True)
    rows = ps.read_files(str(data / "in"), schema="k string, v bigint, ts timestamp", format="json")
    answered = rows.event_time("ts", "5s").map(lambda row: row | {"v": random.getrandbits(20)}, deterministic=False)
    sums = answered.key_by("k").window(ps.tumbling("1h")).aggregate(total="sum(v)")
    raw = ps.files(str(data / "raw"), format="json")
    return ps.Pipeline("summed", answered.to(raw).named("raw"), sums.to(ps.files(str(data / "sums"), format="json")))


@pytest.mark.parametrize("state", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_state_and_sinks_have_the_same_answers_of_an_epoch_that_died_before_its_seal(
    state: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = on(settings, state)

    def died(*_: object) -> None:
        message = "the job dies here"
        raise OSError(message)

    for number in range(FED):
        feed(tmp_path / "in", number)
        with monkeypatch.context() as patched:
            patched.setattr(ResultStaging, "seal", died)
            with pytest.raises(ps.errors.PenstockError):
                summed(tmp_path).run(until="drained", checkpoint=tmp_path / "checkpoint", settings=chosen)
        summed(tmp_path).run(until="drained", checkpoint=tmp_path / "checkpoint", settings=chosen)
    summed(tmp_path).run(until="ended", checkpoint=tmp_path / "checkpoint", settings=chosen)
    with duckdb.connect() as judge:
        by_raw = judge.sql(f"SELECT k, sum(v) FROM read_json('{tmp_path}/raw/*.json') GROUP BY k ORDER BY k")
        by_state = judge.sql(f"SELECT k, sum(total) FROM read_json('{tmp_path}/sums/*.json') GROUP BY k ORDER BY k")
        assert by_state.fetchall() == by_raw.fetchall() != []
