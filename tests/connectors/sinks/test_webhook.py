"""Rows posted to a real server on this machine, which fails now and then."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.connectors.catalog import sink_from_spec
from penstock.connectors.sinks.webhook import WebhookSink
from penstock.contracts import Epoch
from penstock.errors import BadValue, SettingsError, SinkFailed
from penstock.settings import Settings
from tests.connectors.sinks.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def numbers(receiver: Receiver) -> list[int]:
    return sorted(row["n"] for row in receiver.rows)


def write(sink: WebhookSink, number: int, *partitions: list[int]) -> None:
    sink.configure("job", Settings())
    sink.check()
    epoch = Epoch("line", sink.name, number)
    task = pickle.loads(pickle.dumps(sink))
    batches = [[pa.RecordBatch.from_pylist([{"n": n} for n in rows])] if rows else [] for rows in partitions]
    sink.commit(epoch, [task.prepare(epoch, n, some) for n, some in enumerate(batches)])


def test_rows_come_as_json_arrays_each_under_a_key_of_its_own(receiver: Receiver) -> None:
    sink = WebhookSink(receiver.url, {"X-Team": "blue"}, rows=4)
    write(sink, 3, [1, 2, 3], [4, 5, 6, 7], [])
    write(sink, 4, [])
    assert numbers(receiver) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(rows) for _, rows in receiver.posts] == [4, 3]
    assert len(set(receiver.keys)) == 2
    assert all(key.startswith(f"line-{sink.name}-3-") for key in receiver.keys)
    headers = receiver.posts[0][0]
    assert (headers["X-Team"], headers["Content-Type"]) == ("blue", "application/json")


def test_a_replayed_epoch_has_the_same_keys_however_tasks_share_its_rows(receiver: Receiver) -> None:
    sink = WebhookSink(receiver.url, rows=2)
    write(sink, 3, [1, 2, 3], [4, 5])
    write(sink, 3, [5, 1], [4], [3, 2])
    assert receiver.posts[:3] == receiver.posts[3:]
    write(sink, 3, [1, 2, 3], [4, 6])
    assert receiver.keys[:2] == receiver.keys[6:8]
    assert receiver.keys[8] not in receiver.keys[:6]


def test_a_receiver_that_fails_now_and_then_gets_every_row(receiver: Receiver) -> None:
    receiver.answers = [503, 200, -1, 429, 200, 500]
    write(WebhookSink(receiver.url, rows=2), 1, [1, 2, 3, 4, 5, 6])
    assert numbers(receiver) == [1, 2, 3, 4, 5, 6]


def test_a_receiver_that_stays_down_stops_the_epoch(receiver: Receiver) -> None:
    receiver.answers = [500, 500]
    with pytest.raises(SinkFailed, match=r"/in\?x=1 answers 500 Internal Server Error: so it is") as raised:
        write(WebhookSink(receiver.url, retries=1), 1, [1])
    assert raised.value.transient
    receiver.server.server_close()
    receiver.server.shutdown()
    with pytest.raises(SinkFailed, match="does not answer") as raised:
        write(WebhookSink(receiver.url.replace("/in", "/again"), retries=0), 1, [1])
    assert raised.value.transient


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "user and password"), (404, "path"), (413, "rows="), (422, "fix"), (302, "new URL")]
)
def test_what_the_receiver_refuses_is_not_tried_again(receiver: Receiver, status: int, hint: str) -> None:
    receiver.answers = [status]
    with pytest.raises(SinkFailed, match=rf"answers {status} (.|\n)*{hint}") as raised:
        write(WebhookSink(receiver.url), 1, [1])
    assert not raised.value.transient
    assert receiver.posts == []


def test_a_login_in_the_address_is_sent_and_shown_nowhere(receiver: Receiver) -> None:
    url = receiver.url.replace("://", "://ada:se%40cret@")
    sink = WebhookSink(url, {"X-Api-Key": "hush"})
    receiver.answers = [200, 400]
    write(sink, 1, [1])
    sent = receiver.posts[0][0]["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"ada:se@cret"
    with pytest.raises(SinkFailed) as raised:
        write(sink, 2, [1])
    shown = f"{raised.value} {sink.spec()} {sink.name}"
    assert "cret" not in shown
    assert "hush" not in shown
    with pytest.raises(SettingsError, match="not kept in plans"):
        sink_from_spec(sink.spec())


def test_mistakes_are_refused_before_anything_runs() -> None:
    named = Settings(connections={"alerts": "https://example.org/a"})
    sink = WebhookSink("alerts")
    sink.configure("job", named)
    sink.check()
    assert sink.name == "alerts"
    with pytest.raises(SettingsError, match=r"unknown connection 'alert'(.|\n)*did you mean 'alerts'"):
        WebhookSink("alert").configure("job", named)
    with pytest.raises(BadValue, match=r"'ftp://h/x' is not a web address"):
        WebhookSink("ftp://h/x")
    wrong = WebhookSink("alerts")
    wrong.configure("job", Settings(connections={"alerts": "ftp://h/x"}))
    with pytest.raises(SettingsError, match=r"'ftp://h/x' is not a web address"):
        wrong.check()
    with pytest.raises(BadValue, match="rows=0"):
        WebhookSink("alerts", rows=0)
