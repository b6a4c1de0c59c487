"""What is read and written here is what Kafka's own schemas say, for every kind of request and every version."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from penstock.log.errors import ErrorCode, LogError
from penstock.log.handlers import COROUTINES, HOT
from penstock.log.protocol.apis import APIS, BY_NAME, Api
from penstock.log.protocol.fetch import Served, read_fetch, write_fetch
from penstock.log.protocol.messages import error_reply, read_request, write_reply
from penstock.log.protocol.produce import Result, read_produce, write_produce
from penstock.log.storage.segments.files import FilePool
from penstock.log.storage.segments.segment import Slice
from tests.log.requests import VERSIONS, decoded_reply, encoded, entities, requests

PRODUCE, FETCH = BY_NAME["produce"], BY_NAME["fetch"]
every_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
patient = settings(deadline=None)
produce_versions = st.integers(PRODUCE.oldest, PRODUCE.newest)
fetch_versions = st.integers(FETCH.oldest, FETCH.newest)
codes = st.sampled_from(ErrorCode)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
topic_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_every_request_in_the_table_has_a_handler_and_no_other() -> None:
    assert set(HOT) | set(COROUTINES) == {api.name for api in APIS.values()}


@every_api
def test_the_table_knows_which_versions_are_flexible(api: Api) -> None:
    for version in _versions(api):
        schema: Any = load_request_schema(api.key, version)
        assert schema.__flexible__ == api.is_flexible(version)
        assert schema.__module__.split(".")[2] == api.name


@every_api
def test_an_empty_reply_is_one_that_clients_can_read(api: Api) -> None:
    for version in _versions(api):
        reply = decoded_reply(api, version, write_reply(api, version, {}))
        assert type(reply) is load_response_schema(api.key, version)


@every_api
def test_a_refusal_of_the_whole_request_carries_its_code(api: Api) -> None:
    for version in _versions(api):
        body = error_reply(api, version, LogError(ErrorCode.not_coordinator, "not here"))
        if body is not None:
            assert decoded_reply(api, version, body).error_code is ErrorCode.not_coordinator


def _versions(api: Api) -> range:
    return range(api.oldest, api.newest + 1)


@patient
@given(data=st.data())
def test_a_reply_keeps_every_field_that_a_handler_gave(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    reply = data.draw(entities(load_response_schema(api.key, version)))
    body = write_reply(api, version, _fields(reply))
    assert decoded_reply(api, version, body) == reply


def _fields(value: Any) -> Any:
    """Return a message the way a handler says it: dicts, lists, and milliseconds."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _fields(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple):
        return [_fields(each) for each in value]
    if hasattr(value, "total_seconds"):
        return round(value.total_seconds() * 1000)
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value


@patient
@given(data=st.data())
def test_a_request_is_read_as_it_was_written(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(VERSIONS))
    request = data.draw(requests(api, version))
    assert read_request(api, version, encoded(request)) == request


@patient
@given(produce_versions, st.data())
def test_produce_is_read_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(PRODUCE, version))
    body = b"head" + encoded(request)
    read = read_produce(version, memoryview(bytearray(body)), 4)
    assert (read.transactional_id, read.acks) == (request.transactional_id, request.acks)
    assert read.timeout_ms == round(request.timeout.total_seconds() * 1000)
    wanted = [(_named(topic), one.index, one.records) for topic in request.topic_data for one in topic.partition_data]
    assert [(one.named, one.partition, one.records) for one in read.batches] == wanted


def _named(topic: Any) -> str | bytes:
    """A topic's name, or its id where a version has that instead."""
    if hasattr(topic, "topic_id"):
        return (topic.topic_id or UUID(int=0)).bytes
    return str(topic.topic if hasattr(topic, "topic") else topic.name)


def _names(version: int, first_with_ids: int) -> st.SearchStrategy[str | bytes]:
    ids = st.uuids().map(lambda each: each.bytes)
    return ids if version >= first_with_ids else topic_names


@patient
@given(fetch_versions, st.data())
def test_fetch_is_read_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(FETCH, version))
    read = read_fetch(version, memoryview(b"head" + encoded(request)), 4)
    assert read.max_wait_ms == round(request.max_wait.total_seconds() * 1000)
    assert (read.min_bytes, read.max_bytes) == (request.min_bytes, request.max_bytes)
    assert read.committed == (request.isolation_level == 1)
    assert read.session_id == getattr(request, "session_id", 0)
    assert read.session_epoch == getattr(request, "session_epoch", -1)
    found = [(one.named, one.partition, one.offset, one.max_bytes, one.leader_epoch) for one in read.wanted]
    assert found == [
        (
            _named(topic),
            one.partition,
            one.fetch_offset,
            one.partition_max_bytes,
            getattr(one, "current_leader_epoch", -1),
        )
        for topic in request.topics
        for one in topic.partitions
    ]


arrivals = st.just(-1) | st.integers(0, 2**41)
wrong_records = st.lists(st.tuples(int32s, st.none() | topic_names), max_size=3)
results = st.builds(Result, int32s, codes, int64s, arrivals, int64s, st.none() | topic_names, wrong_records)


@patient
@given(produce_versions, st.data(), st.integers(0, 9))
def test_the_answer_to_produce_is_what_kio_reads(version: int, data: st.DataObject, throttle: int) -> None:
    topics = data.draw(st.lists(st.tuples(_names(version, 13), st.lists(results, max_size=3)), max_size=3))
    reply = decoded_reply(PRODUCE, version, write_produce(version, topics, throttle))
    assert [_named(topic) for topic in reply.responses] == [name for name, _ in topics]
    for topic, (_, given_results) in zip(reply.responses, topics, strict=True):
        for one, result in zip(topic.partition_responses, given_results, strict=True):
            assert (one.index, one.error_code, one.base_offset) == (result.partition, result.code, result.base_offset)
            assert getattr(one, "log_start_offset", result.log_start) == result.log_start
            assert getattr(one, "error_message", result.message) == result.message
            if version >= 8:
                wrong = [(each.batch_index, each.batch_index_error_message) for each in one.record_errors]
                assert wrong == result.records


@patient
@given(version=fetch_versions, data=st.data())
def test_the_answer_to_fetch_is_what_kio_reads(version: int, data: st.DataObject, records_file: Path) -> None:
    handle = FilePool().get(records_file)
    slices = st.builds(Slice, st.just(handle), st.integers(0, 100), st.integers(1, 100))
    aborted = st.none() | st.lists(st.tuples(int64s, int64s), max_size=2)
    served = st.builds(Served, int32s, codes, int64s, int64s, int64s, aborted, st.none() | slices)
    topics = data.draw(st.lists(st.tuples(_names(version, 13), st.lists(served, max_size=3)), max_size=3))
    pieces = write_fetch(version, topics, 3)
    body = b"".join(handle.read(one.position, one.size) if isinstance(one, Slice) else one for one in pieces)
    reply = decoded_reply(FETCH, version, body)
    assert [_named(topic) for topic in reply.responses] == [name for name, _ in topics]
    read = [one for topic in reply.responses for one in topic.partitions]
    for one, given_one in zip(read, [one for _, ones in topics for one in ones], strict=True):
        _same_served(one, given_one)


def _same_served(one: Any, served: Served) -> None:
    assert (one.partition_index, one.error_code, one.high_watermark) == (
        served.partition,
        served.code,
        served.high_watermark,
    )
    assert one.last_stable_offset == served.last_stable_offset
    assert getattr(one, "log_start_offset", served.log_start) == served.log_start
    aborted = one.aborted_transactions
    assert (None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]) == served.aborted
    records = served.records
    assert (one.records or b"") == (b"" if records is None else records.handle.read(records.position, records.size))


@pytest.fixture(scope="session")
def records_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "file"
    path.write_bytes(bytes(range(200)))
    return path


def test_no_two_requests_share_a_number() -> None:
    keys = sorted(api.key for api in APIS.values())
    assert all(len(list(same)) == 1 for _, same in groupby(keys))
