from __future__ import annotations

import io
import json
import os
import pickle

import pytest

from penstock.connectors.catalog import source_from_spec
from penstock.connectors.files.stdin import StdinSource
from penstock.contracts import Rejected
from penstock.errors import BadSchema, BadValue, CheckpointDamaged, SourceFailed
from penstock.schema import Schema
from tests.connectors.files.power_loss import Recorder


def fed(tmp_path, data, source=None):
    """Feed input to its end and wait for the copy."""
    source = source or StdinSource()
    source.stream = io.BufferedReader(io.BytesIO(data))
    source.open(str(tmp_path))
    source.start_background()
    source._copier.join(10)
    return source


def rows(source, start=0, end=None):
    end = source.latest({"0": start}, None)["0"] if end is None else end
    return [
        part
        for split in source.splits({"0": start}, {"0": end}, 2)
        for item in pickle.loads(pickle.dumps(source)).read_split(split)
        for part in ([item] if isinstance(item, Rejected) else item.to_pylist())
    ]


def test_lines_are_rows_and_the_last_needs_no_line_feed_at_the_end(tmp_path):
    source = fed(tmp_path, b"a\nb\nc")
    assert rows(source) == [{"value": "a"}, {"value": "b"}, {"value": "c"}]
    assert not source.ended({"0": 4})
    assert source.ended(source.latest({}, None))


def test_a_half_line_waits_for_its_rest(tmp_path):
    read, write = os.pipe()
    source = StdinSource(Schema("a int"), "csv")
    source.open(str(tmp_path))
    with os.fdopen(read, "rb") as stream:
        source.stream = stream
        assert source.latest(source.initial(), None) == {"0": 0}
        source.start_background()
        (tmp_path / "spool").write_bytes(b"1\n2")
        assert source.latest({}, None) == {"0": 2}
        assert not source.ended({"0": 2})
        os.close(write)
        source._copier.join(10)


def test_json_and_csv_are_parsed_and_bad_lines_rejected(tmp_path):
    source = fed(tmp_path / "j", b'{"a":1}\n{"a":"x"}\n', StdinSource(Schema("a int"), "json"))
    assert rows(source) == [
        Rejected('column a: "x" cannot be read as int', b'{"a":"x"}', "stdin:8"),
        {"a": 1},
    ]
    source = fed(tmp_path / "c", b"\xef\xbb\xbfb,a\nx,1\ny,2\n", StdinSource(Schema("a int"), "csv"))
    assert rows(source) == [{"a": 1}, {"a": 2}]
    assert rows(source, start=11) == [{"a": 2}]


def test_a_restart_keeps_what_was_read_and_goes_on_with_its_own_input(tmp_path):
    first = fed(tmp_path, b"a\nb")
    middle = first.latest({}, None)["0"]
    again = fed(tmp_path, b"c\n")
    assert rows(again, 0, middle) == [{"value": "a"}, {"value": "b"}]
    assert rows(again, middle) == [{"value": "c"}]


def test_a_half_line_of_a_crashed_run_is_dropped(tmp_path):
    (tmp_path / "spool").write_bytes(b"a\nhal")
    assert rows(fed(tmp_path, b"b\n")) == [{"value": "a"}, {"value": "b"}]


@pytest.mark.parametrize("left", [b"", b"a\n"])
def test_lines_that_were_read_and_are_lost_are_not_replaced_by_the_next_input(tmp_path, left):
    middle = fed(tmp_path, b"a\nb\n").latest({}, None)
    (tmp_path / "spool").write_bytes(left)
    again = fed(tmp_path, b"cc\ndd\n"[: 3 - len(left)])
    with pytest.raises(CheckpointDamaged, match=r"spool ends at \d, and the newest epoch has read up to 4") as error:
        again.latest(middle, None)
    assert "copy" in error.value.hint
    with pytest.raises(CheckpointDamaged, match="spool ends at"):
        again.splits({}, middle, 1)


@pytest.mark.parametrize("data", [b"aa\nbb\n", b"aa\nbb"])
def test_after_a_power_cut_the_spool_has_all_that_an_epoch_has_read(tmp_path, data):
    recorder = Recorder(tmp_path / "job")
    (tmp_path / "job").mkdir()
    with recorder.watching() as recording:
        end = fed(tmp_path / "job" / "stdin", data).latest({}, None)["0"]
        recording.mark("planned")
        again = fed(tmp_path / "job" / "stdin", b"cc\n")
        assert again.latest({"0": end}, None)["0"] == len(b"aa\nbb\ncc\n")
        recording.mark("again")
    for number, state in enumerate(recording.states()):
        here = tmp_path / str(number)
        state.put(here)
        seen = fed(here / "stdin", b"dd\n")
        values = [row["value"] for row in rows(seen)]
        kept = values[: {(): 0, ("planned",): 2, ("planned", "again"): 3}[state.marks]]
        assert kept == ["aa", "bb", "cc"][: len(kept)], state.said
        assert values[-1] == "dd"
        assert {*values} <= {"aa", "bb", "cc", "dd"}, state.said
        if state.marks:
            assert seen.latest({"0": end}, None)["0"] >= end, state.said


def test_epochs_are_bounded(tmp_path):
    source = fed(tmp_path, b"123456789\n" * 300_000)
    assert source.latest({}, 1) == {"0": 1 << 20}
    assert source.latest({}, 200_000) == {"0": 2_000_000}
    assert len(source.splits({}, {"0": 2_000_000}, 4)) == 4
    assert len(rows(source, 0, 1 << 20)) + len(rows(source, 1 << 20)) == 300_000


def test_wrong_formats_are_refused_and_specs_come_back():
    with pytest.raises(BadSchema, match="stdin: csv needs a schema"):
        StdinSource(format="csv")
    with pytest.raises(BadValue, match="format='xml' is not known"):
        StdinSource(format="xml")
    with pytest.raises(SourceFailed, match="no folder"):
        StdinSource().latest({}, None)
    source = StdinSource(Schema("a int"), "json")
    source.check()
    assert source_from_spec(json.loads(json.dumps(source.spec()))) == source
