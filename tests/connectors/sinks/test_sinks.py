from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.connectors.catalog import sink_from_spec, source_from_spec
from penstock.connectors.sinks.callback import CallbackSink
from penstock.connectors.sinks.collect import CollectSink
from penstock.connectors.sinks.console import ConsoleSink
from penstock.contracts import Epoch
from penstock.errors import BadFunction, BadValue, SinkFailed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def batch(*numbers):
    return pa.RecordBatch.from_pylist([{"a": n, "ts": NOON} for n in numbers])


def write(sink, number, *partitions):
    epoch = Epoch("line", sink.name, number)
    task = pickle.loads(pickle.dumps(sink))
    sink.commit(epoch, [task.prepare(epoch, n, batches) for n, batches in enumerate(partitions)])
    return epoch


def test_collected_rows_come_by_epoch_and_a_replay_adds_none():
    sink = CollectSink()
    epoch = write(sink, 1, [batch(3)], [batch(4), batch(5)])
    write(sink, 0, [batch(1, 2)], [])
    write(sink, 1, [batch(3)], [batch(4, 5)])
    assert [row["a"] for row in sink.rows] == [1, 2, 3, 4, 5]
    assert sink.rows[0]["ts"] == NOON
    assert sink.committed(epoch)


def test_two_collecting_sinks_are_two():
    assert CollectSink() != CollectSink()
    assert CollectSink().spec() is None


def test_console_prints_twenty_rows_and_the_number_of_the_rest(capsys):
    sink = ConsoleSink()
    write(sink, 7, [batch(*range(15))], [batch(*range(100, 115)), batch(*range(200, 230))])
    printed = capsys.readouterr().out
    assert "console, epoch 7" in printed
    assert "104" in printed
    assert "105" not in printed
    assert "... and 40 more" in printed
    write(sink, 8, [batch()])
    assert capsys.readouterr().out == ""


def test_console_prints_values_as_they_are(capsys):
    write(ConsoleSink(), 0, [pa.RecordBatch.from_pylist([{"[b]": "[red]x", "n": None}])])
    printed = capsys.readouterr().out
    assert "[red]x" in printed
    assert "[b]" in printed


def test_a_callback_gets_the_epoch_and_its_table():
    calls = []
    sink = CallbackSink(lambda epoch, table: calls.append((epoch.number, table.num_rows)))
    write(sink, 3, [batch(1)], [batch(2, 3)])
    write(sink, 4, [])
    assert calls == [(3, 3)]


def test_a_callback_that_raises_is_named():
    def notify(epoch, table):
        raise ValueError("no route")

    sink = CallbackSink(notify)
    assert sink.name == "notify"
    epoch = Epoch("line", "notify", 3)
    with pytest.raises(SinkFailed, match=r"notify failed on epoch 3: ValueError\('no route'\)"):
        sink.commit(epoch, [sink.prepare(epoch, 0, [batch(1)])])
    with pytest.raises(BadFunction, match="5 is not a function"):
        CallbackSink(5)


def test_specs_of_unknown_kinds_are_refused():
    assert sink_from_spec({"kind": "console"}) == ConsoleSink()
    with pytest.raises(BadValue, match=r"'file' is not a kind of source(.|\n)*did you mean 'files'"):
        source_from_spec({"kind": "file"})
    with pytest.raises(BadValue, match="'collect' is not a kind of sink"):
        sink_from_spec({"kind": "collect"})
