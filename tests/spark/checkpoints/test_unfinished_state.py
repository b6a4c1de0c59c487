"""Promise: what a killed epoch has written of its state is not used once the epoch has run again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
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
