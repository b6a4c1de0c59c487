"""The file sink on a real S3 server."""

from __future__ import annotations

import http.client
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pytest

import penstock as ps
from penstock.connectors.files.compaction import Compaction
from penstock.connectors.files.sink import FileSink
from penstock.contracts import Epoch
from penstock.errors import BadValue, SettingsError, SinkFailed
from penstock.schema import Schema
from penstock.storage.stores import open_store
from penstock.testing import check_sink
from tests.connectors.files.crashes import Killed
from tests.s3 import running_s3

PAIRS = Schema("a bigint, b string")


@pytest.fixture(scope="module")
def server():
    with running_s3() as variables:
        yield variables


@pytest.fixture
def bucket(server, monkeypatch):
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return f"s3://lake/{uuid4().hex}"


def opened(url, *args, **options):
    sink = FileSink(f"{url}/out", *args, **options)
    sink.open(PAIRS, ())
    return sink


def batch(*rows):
    return pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in rows], schema=PAIRS.nullable().arrow)


def write(sink, number, *partitions):
    epoch = Epoch("line", "out", number)
    in_task = pickle.loads(pickle.dumps(sink))
    sink.commit(epoch, [in_task.prepare(epoch, n, [rows]) for n, rows in enumerate(partitions)])


def table(url, server):
    """What a reader finds that lists the prefix and knows nothing of Penstock."""
    files = pafs.S3FileSystem(
        access_key=server["AWS_ACCESS_KEY_ID"],
        secret_key=server["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=server["AWS_ENDPOINT_URL"].removeprefix("http://"),
        scheme="http",
    )
    path = url.removeprefix("s3://") + "/out"
    if files.get_file_info(path).type == pafs.FileType.NotFound:
        return []
    return pads.dataset(path, filesystem=files, partitioning=None, format="parquet").to_table().to_pylist()


def numbers(url, server):
    return sorted(row["a"] for row in table(url, server))


def test_it_keeps_the_contract(bucket, server):
    def rows():
        return [{"id": row["id"], "word": row["word"]} for row in table(bucket, server)]

    check_sink(lambda: ps.files(f"{bucket}/out"), rows)


def test_an_epoch_shows_one_object_for_each_folder_and_nothing_stays_staged(bucket, server):
    sink = opened(bucket, partition_by="b")
    sink.check()
    write(sink, 0, batch((1, "x/y"), (2, None)), batch((3, "x/y")))
    at = open_store(f"{bucket}/out")
    assert sorted(at.files("")) == [
        "b=__HIVE_DEFAULT_PARTITION__/part-line-00000000-0.parquet",
        "b=x%2Fy/part-line-00000000-0.parquet",
    ]
    assert not at.files("_penstock/staged")
    assert numbers(bucket, server) == [1, 2, 3]


class KilledStore:
    """A real store whose process is killed after so many requests."""

    def __init__(self, store, requests):
        self._store, self._left = store, iter(range(requests))

    def __getattr__(self, name):
        def call(*args, **options):
            if next(self._left, None) is None:
                raise Killed
            return getattr(self._store, name)(*args, **options)

        return call


@pytest.mark.parametrize("requests", range(0, 16, 3))
def test_a_crash_anywhere_gives_all_rows_once_after_the_replay(bucket, server, requests):
    parts = [batch((n, "x"), (n + 10, "y")) for n in range(3)]
    sink = opened(bucket, partition_by="b")
    write(sink, 0, batch((99, "x")))
    epoch = Epoch("line", "out", 1)
    tokens = [sink.prepare(epoch, n, [rows]) for n, rows in enumerate(parts)]
    sink._store._store = KilledStore(sink._store._store, requests)
    with suppress(Killed):
        sink.commit(epoch, tokens)
    write(opened(bucket, partition_by="b"), 1, *parts)
    assert numbers(bucket, server) == [0, 1, 2, 10, 11, 12, 99]
    assert not open_store(f"{bucket}/out").files("_penstock/staged")


def test_a_run_that_was_taken_over_cannot_commit(bucket, server):
    old, new = opened(bucket), opened(bucket)
    write(old, 0, batch((1, "x")))
    epoch = Epoch("line", "out", 1)
    token = old.prepare(epoch, 0, [batch((2, "x"))])
    new.bind_lineage("line", "out")
    with pytest.raises(SinkFailed, match="another run of this job writes to"):
        old.commit(epoch, [token])
    write(new, 1, batch((2, "x")))
    assert numbers(bucket, server) == [1, 2]


@pytest.mark.parametrize("requests", [None, *range(0, 16, 3)])
def test_compaction_shows_all_rows_once_whenever_it_is_killed(bucket, server, requests):
    sink = opened(bucket)
    for n in range(4):
        write(sink, n, batch((n, "x")))
    at = open_store(f"{bucket}/out")
    if requests is not None:
        at._store = KilledStore(at._store, requests)
    with suppress(Killed):
        Compaction(at).run(1 << 20)
    opened(bucket)
    assert numbers(bucket, server) == [0, 1, 2, 3]
    Compaction(open_store(f"{bucket}/out")).run(1 << 20)
    assert sorted(open_store(f"{bucket}/out").files("")) == ["part-line-00000003-0.parquet", "whole-00000001.parquet"]
    assert numbers(bucket, server) == [0, 1, 2, 3]


def test_at_least_once_puts_objects_under_their_names_right_away(bucket, server):
    sink = opened(bucket, guarantee="at_least_once")
    sink.prepare(Epoch("line", "out", 0), 0, [batch((1, "x"))])
    assert numbers(bucket, server) == [1]
    assert not open_store(f"{bucket}/out").files("_penstock")


def test_mistakes_are_told_before_the_job_starts(bucket, monkeypatch):
    with pytest.raises(SettingsError, match="there is no bucket 'nowhere'"):
        FileSink("s3://nowhere/out").check()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(SettingsError, match="permission denied") as refused:
        FileSink(f"{bucket}/out").check()
    assert "AWS_SECRET_ACCESS_KEY" in str(refused.value)
    for url, words in (
        ("s3a://lake/out", "did you mean 's3'"),
        ("s3:///out", "has no bucket"),
        ("s3://lake/../out", "has no bucket"),
    ):
        with pytest.raises(BadValue, match=words):
            FileSink(url)


def test_a_relative_path_goes_below_the_setting_files():
    sink = FileSink("out")
    sink.set_base_path("s3://lake/jobs/")
    assert sink._store.url == "s3://lake/jobs/out"


class Troubled(BaseHTTPRequestHandler):
    """Hands requests on to the server, but for the first ones, which it answers with 500 or not at all."""

    protocol_version = "HTTP/1.1"
    trouble: Iterator[str]
    behind: str

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match next(self.trouble, None):
            case "500":
                self.send_error(500)
            case "hang up":
                self.close_connection = True
            case _:
                self._hand_on(body)

    def _hand_on(self, body):
        upstream = http.client.HTTPConnection(self.behind)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        data = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(data)
        upstream.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def troubled(server, trouble):
    handler = type("Handler", (Troubled,), {"trouble": trouble, "behind": server["AWS_ENDPOINT_URL"][7:]})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()


def test_errors_of_the_server_are_tried_again(bucket, server, monkeypatch):
    trouble = iter(["500", "", "500", "", "hang up", "", "", "500", "", "hang up", "500"])
    with troubled(server, trouble) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        sink = opened(bucket)
        write(sink, 0, batch((1, "x")), batch((2, "x")))
        write(sink, 1, batch((3, "x")))
    assert next(trouble, None) is None
    assert numbers(bucket, server) == [1, 2, 3]


def test_a_server_that_stays_away_stops_the_job_with_an_error_that_passes(bucket, server, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    with troubled(server, iter(lambda: "500", None)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(SinkFailed, match="cannot write to") as failed:
            opened(bucket)
    assert failed.value.transient
    assert "check that the store is reachable" in str(failed.value)
