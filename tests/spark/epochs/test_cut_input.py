"""Promise: a sink that commits in its task commits the whole partition or nothing."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

import penstock as ps
from penstock.contracts import Epoch, Sink
from penstock.settings import Settings
from penstock.spark.lowering.buckets import _Worker
from penstock.spark.session.spark_session import session
from penstock.spark.tasks.end_of_stream import InputCutShort, _load_stream
from penstock.spark.tasks.spark_types import array_function, map_in_arrow

BATCH, ROWS = 100, 1_000
# Long rows: what a worker's buffers hold back would never reach the sink.
SCHEMA, PAD = "id bigint, pad string", "x" * 4_000
_BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch"


def _stream(batches: int, *, ended: bool) -> io.BytesIO:
    schema = pa.schema([("id", pa.int64())])
    data = io.BytesIO()
    writer = pa.ipc.new_stream(data, schema)
    for number in range(batches):
        writer.write_batch(pa.record_batch([pa.array([number])], schema=schema))
    if ended:
        writer.close()
    return io.BytesIO(data.getvalue())


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_stream_without_its_end_marker_raises_after_its_batches(batches: int) -> None:
    serializer = ArrowStreamSerializer()
    assert len(list(_load_stream(serializer, _stream(batches, ended=True)))) == batches
    read = _load_stream(serializer, _stream(batches, ended=False))
    assert len([next(read) for _ in range(batches)]) == batches
    with pytest.raises(InputCutShort):
        next(read)


class _Frame:
    """In place of a DataFrame: holds the function that it is given for its workers."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def toDF(self, *names: str) -> _Frame:
        return self

    def mapInArrow(self, function: Any, ddl: str) -> Any:
        return function


def _of_bucket() -> Any:
    unused: Any = None
    return _Worker(unused, (), pa.schema([]), 0, "", "", "", unused, None).invoke


IN_WORKERS: dict[str, Callable[[], Any]] = {
    "rows": lambda: array_function(lambda rows: rows, "boolean").func,
    "batches": lambda: map_in_arrow(cast("DataFrame", _Frame("id")), lambda rows: rows, SCHEMA),
    "batches with odd names": lambda: map_in_arrow(cast("DataFrame", _Frame("a.b")), lambda rows: rows, SCHEMA),
    "buckets": _of_bucket,
}


@pytest.mark.parametrize("kind", IN_WORKERS)
def test_every_worker_that_stages_rows_requires_the_end_marker(
    kind: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = cloudpickle.dumps(IN_WORKERS[kind]())
    # As in a worker that starts; the test puts back what was there.
    monkeypatch.setattr(ArrowStreamSerializer, "load_stream", lambda self, stream: pa.ipc.open_stream(stream))
    assert len(list(ArrowStreamSerializer().load_stream(_stream(2, ended=False)))) == 2
    cloudpickle.loads(sent)
    with pytest.raises(InputCutShort):
        list(ArrowStreamSerializer().load_stream(_stream(2, ended=False)))


class InTask(Sink):
    """A user's sink whose `prepare` commits rows and ledger in one transaction."""

    guarantee = "exactly_once"

    def __init__(self, path: str) -> None:
        self.name, self.path = "own", path

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        with sqlite3.connect(self.path, timeout=60) as db:
            db.execute("CREATE TABLE IF NOT EXISTS ledger (id TEXT PRIMARY KEY)")
            db.execute("CREATE TABLE IF NOT EXISTS rows (id BIGINT)")
            id = f"{epoch.id}/{partition}"
            if db.execute("SELECT 1 FROM ledger WHERE id = ?", (id,)).fetchall():
                return
            for batch in batches:
                db.executemany("INSERT INTO rows VALUES (?)", [(row["id"],) for row in batch.to_pylist()])
            db.execute("INSERT INTO ledger VALUES (?)", (id,))

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        pass


class FailsOnce:
    """A function of a row that fails late in its task, the first time."""

    def __init__(self, marker: str, how: str) -> None:
        self.marker, self.how = marker, how

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == ROWS * 3 // 4 and not os.path.exists(self.marker):
            Path(self.marker).touch()
            if self.how == "raises":
                message = "once"
                raise OSError(message)
            os._exit(1)
        return row


@pytest.fixture
def small_batches(settings: Settings) -> Iterator[None]:
    spark = session(settings)
    before = spark.conf.get(_BATCHES)
    spark.conf.set(_BATCHES, str(BATCH))
    yield
    session(settings).conf.set(_BATCHES, str(before))


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_a_task_that_fails_late_and_is_retried_writes_every_row_once(
    how: str, settings: Settings, tmp_path: Path, small_batches: None
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("".join(json.dumps({"id": i, "pad": PAD}) + "\n" for i in range(ROWS)))
    rows = ps.read_files(str(tmp_path / "in"), schema=SCHEMA, format="json")
    mapped = rows.map(FailsOnce(str(tmp_path / "failed"), how), SCHEMA)
    pipeline = ps.Pipeline("late-failure", mapped.to(InTask(str(tmp_path / "rows.db"))))
    pipeline.run(until="ended", checkpoint=tmp_path / "checkpoint", settings=settings)
    assert (tmp_path / "failed").exists()
    with sqlite3.connect(tmp_path / "rows.db") as db:
        found = [id for (id,) in db.execute("SELECT id FROM rows ORDER BY id")]
    assert found == list(range(ROWS))
