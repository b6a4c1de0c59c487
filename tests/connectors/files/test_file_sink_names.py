"""Promise: a file that cannot get its name is refused before its epoch is committed, so it stops no later run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connectors.files.sink import FileSink
from penstock.errors import SinkFailed
from penstock.schema import Schema
from tests.connectors.files.test_file_sink import batch, epoch, opened, rows_in, write


@pytest.mark.parametrize("value", ["\u6771" * 29, "https://example.org/" + "a" * 240])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_value_that_no_folder_can_be_named_after_is_refused_before_the_commit(tmp_path, value, guarantee):
    sink = opened(tmp_path, partition_by="b", guarantee=guarantee)
    with pytest.raises(SinkFailed, match=r"partition_by 'b': the folder of the value .* would have a name of") as error:
        sink.prepare(epoch(), 0, [batch({"a": 1, "b": "fits"}, {"a": 2, "b": value})])
    assert "md5(b)" in str(error.value.hint)
    again = opened(tmp_path, partition_by="b", guarantee=guarantee)
    write(again, 0, [batch({"a": 1, "b": "x" * 200})])
    assert [row["a"] for row in rows_in(tmp_path)] == [1]


def test_a_path_that_is_too_long_is_refused_before_the_commit(tmp_path):
    columns = {f"c{number}": "string" for number in range(20)}
    sink = FileSink(str(tmp_path), partition_by=list(columns))
    sink.open(Schema(columns), ())
    row = pa.RecordBatch.from_pylist([dict.fromkeys(columns, "y" * 240)], schema=Schema(columns).nullable().arrow)
    with pytest.raises(SinkFailed, match="is longer than the 4095 bytes"):
        sink.prepare(epoch(), 0, [row])


def test_a_sink_of_any_name_commits(tmp_path):
    name = "\u6771\u4eac" * 13
    sink = opened(tmp_path)
    sink.commit(epoch(0, name), [sink.prepare(epoch(0, name), 0, [batch({"a": 1})])])
    assert [row["a"] for row in rows_in(tmp_path)] == [1]
