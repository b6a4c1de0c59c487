"""Transactions: InitProducerId, AddPartitionsToTxn, EndTxn, TxnOffsetCommit, and the requests that describe them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.log.configs.topic import INTERNAL_TOPICS
from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.classic.events import Commit
from penstock.log.groups.formats import Committed
from penstock.log.handlers.offsets import commit_offsets
from penstock.log.linear_regex import LinearRegex
from penstock.log.protocol.messages import Fields, distinct, given
from penstock.log.request_context import CLUSTER
from penstock.log.transactions.coordinator import OFFSETS
from penstock.log.transactions.formats import by_topic
from penstock.log.transactions.state_machine import Producer, State, TopicPartition, Transaction

if TYPE_CHECKING:
    from penstock.log.request_context import Call

_MILLISECOND = timedelta(milliseconds=1)
_NOBODY = Producer(-1, -1)
_LONGEST_ID = 2**15 - 1
BATCHED = 4  # the first version of AddPartitionsToTxn for several transactions at once


async def init_producer_id(call: Call, request: Any) -> Fields:
    """Allocate a producer id, or the next epoch of a transactional id."""
    transactional_id = request.transactional_id
    _check_may_init(call, transactional_id)
    claim = Producer(given(request, "producer_id", -1), given(request, "producer_epoch", -1))
    if transactional_id is not None and not 0 < len(transactional_id.encode()) <= _LONGEST_ID:
        raise LogError(ErrorCode.invalid_request, f"a transactional id has 1 to {_LONGEST_ID} bytes")
    if (claim.id < 0) != (claim.epoch < 0):
        raise LogError(ErrorCode.invalid_request, "a producer id without an epoch, or an epoch without an id")
    timeout = request.transaction_timeout // _MILLISECOND
    with _fencing_error_since(4, call):
        producer = await call.broker.transactions.init_producer_id(
            transactional_id, timeout, None if claim == _NOBODY else claim
        )
    return {"producer_id": producer.id, "producer_epoch": producer.epoch}


def _check_may_init(call: Call, transactional_id: str | None) -> None:
    if transactional_id is not None:
        _check_transactional_id(call, transactional_id)
    elif not _may_write_something(call):
        raise LogError(ErrorCode.cluster_authorization_failed, "IDEMPOTENT_WRITE is not allowed")


def _may_write_something(call: Call) -> bool:
    """Return whether idempotent writes are allowed: to clients that may write to some topic."""
    return call.allowed("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER) or call.allowed_somewhere("WRITE", "TOPIC")


async def add_partitions_to_txn(call: Call, request: Any) -> Fields:
    """Add partitions to a transaction: all of them or none."""
    if call.version >= BATCHED:
        return await add_partitions_to_txns(call, request)
    asked = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    refused = {each: _unwritable(call, *each) for each in asked}
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    codes = await _add(call, request.v3_and_below_transactional_id, producer, refused)
    return {"results_by_topic_v3_and_below": _results(codes)}


async def add_partitions_to_txns(call: Call, request: Any) -> Fields:
    """Add partitions to several transactions, or only verify them: a request between brokers."""
    if not call.allowed("CLUSTER_ACTION", "CLUSTER", CLUSTER):
        raise LogError(ErrorCode.cluster_authorization_failed, "CLUSTER_ACTION is not allowed")
    answers = []
    for each in distinct(request.transactions):
        asked = [(topic.name, index) for topic in each.topics for index in topic.partitions]
        codes = await _added(call, each, asked)
        answers.append({"transactional_id": each.transactional_id, "topic_results": _results(codes)})
    return {"error_code": ErrorCode.none, "results_by_transaction": answers}


async def _added(call: Call, each: Any, asked: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    producer = _producer(each)
    if each.verify_only:
        verify = call.broker.transactions.verify
        return {one: verify(each.transactional_id, *producer, *one) or ErrorCode.none for one in asked}
    # As in Kafka the broker that asks has checked whether its client may write.
    return await _add(call, each.transactional_id, producer, {one: _unusable(call, *one) for one in asked})


async def _add(
    call: Call, transactional_id: str, producer: Producer, codes: dict[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """Add partitions that have no error code yet: all of them or none."""
    if any(codes.values()):
        return {each: code or ErrorCode.operation_not_attempted for each, code in codes.items()}
    try:
        _check_transactional_id(call, transactional_id)
        with _fencing_error_since(2, call):
            await call.broker.transactions.add_partitions(transactional_id, producer, list(codes))
    except LogError as error:
        return dict.fromkeys(codes, error.code)
    return codes


def _unwritable(call: Call, topic: str, partition: int) -> ErrorCode:
    if not call.allowed("WRITE", "TOPIC", topic):
        return ErrorCode.topic_authorization_failed
    return _unusable(call, topic, partition)


def _unusable(call: Call, topic: str, partition: int) -> ErrorCode:
    if topic in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception
    known = call.broker.store.topics.get(topic)
    exists = known is not None and 0 <= partition < known.partitions
    return ErrorCode.none if exists else ErrorCode.unknown_topic_or_partition


def _results(codes: dict[TopicPartition, ErrorCode]) -> list[Fields]:
    return [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic, index]} for index in indexes
            ],
        }
        for topic, indexes in by_topic(codes).items()
    ]


async def add_offsets_to_txn(call: Call, request: Any) -> Fields:
    """Add the offsets of a group to a transaction."""
    _check_transactional_id(call, request.transactional_id)
    if not call.allowed("READ", "GROUP", request.group_id):
        raise LogError(ErrorCode.group_authorization_failed, f"READ of group {request.group_id!r} is not allowed")
    with _fencing_error_since(2, call):
        await call.broker.transactions.add_offsets(request.transactional_id, _producer(request))
    return {}


async def txn_offset_commit(call: Call, request: Any) -> Fields:
    """Commit offsets of a group if the transaction commits."""
    event = Commit(
        generation=given(request, "generation_id", -1),
        member_id=given(request, "member_id", ""),
        instance_id=given(request, "group_instance_id", None) or None,
        transactional=True,
    )

    async def write(offsets: dict[TopicPartition, Committed]) -> None:
        _check_transactional_id(call, request.transactional_id)
        code = call.broker.transactions.verify(request.transactional_id, *_producer(request), *OFFSETS)
        if code is not None:
            raise LogError(code, "the group's offsets are no part of this producer's transaction")
        await call.broker.groups.begin_offsets(*_producer(request), request.group_id, offsets)

    return await commit_offsets(call, request, event, write)


async def end_txn(call: Call, request: Any) -> Fields:
    """Commit or abort."""
    _check_transactional_id(call, request.transactional_id)
    with _fencing_error_since(2, call):
        await call.broker.transactions.end(request.transactional_id, _producer(request), request.committed)
    return {}


async def describe_transactions(call: Call, request: Any) -> Fields:
    """Describe transactional ids."""
    return {"transaction_states": [_described(call, each) for each in distinct(request.transactional_ids)]}


def _described(call: Call, transactional_id: str) -> Fields:
    if not call.allowed("DESCRIBE", "TRANSACTIONAL_ID", transactional_id):
        return {"transactional_id": transactional_id, "error_code": ErrorCode.transactional_id_authorization_failed}
    found = call.broker.transactions.find(transactional_id)
    if found is None:
        return {"transactional_id": transactional_id, "error_code": ErrorCode.transactional_id_not_found}
    topics = {name: on for name, on in by_topic(found.partitions).items() if call.allowed("DESCRIBE", "TOPIC", name)}
    return {
        "transactional_id": transactional_id,
        "transaction_state": found.state.label,
        "transaction_timeout": found.timeout,
        "transaction_start_time": found.started,
        "producer_id": found.producer.id,
        "producer_epoch": found.producer.epoch,
        "topics": [{"topic": name, "partitions": on} for name, on in topics.items()],
    }


async def list_transactions(call: Call, request: Any) -> Fields:
    """List transactional ids, optionally filtered by state, producer, duration and pattern."""
    known = {state.label for state in State}
    pattern = given(request, "transactional_id_pattern", None)
    fits = LinearRegex(pattern).matches if pattern else None
    listed = [each for each in call.broker.transactions.all() if _is_listed(call, request, each)]
    found = listed if fits is None else await asyncio.to_thread(_fitting, listed, fits)
    return {
        "unknown_state_filters": [each for each in request.state_filters if each not in known],
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer.id,
                "transaction_state": each.state.label,
            }
            for each in found
        ],
    }


def _fitting(listed: list[Transaction], fits: Callable[[str], bool]) -> list[Transaction]:
    return [each for each in listed if fits(each.transactional_id)]


def _is_listed(call: Call, request: Any, each: Transaction) -> bool:
    lasted, wanted = call.broker.clock() - each.started, given(request, "duration_filter", -1)
    return (
        (not request.state_filters or each.state.label in request.state_filters)
        and (not request.producer_id_filters or each.producer.id in request.producer_id_filters)
        and (wanted < 0 or lasted > wanted)
        and call.allowed("DESCRIBE", "TRANSACTIONAL_ID", each.transactional_id)
    )


async def describe_producers(call: Call, request: Any) -> Fields:
    """Describe the producers of partitions."""
    asked = by_topic(distinct((topic.name, index) for topic in request.topics for index in topic.partition_indexes))
    return {
        "topics": [
            {"name": name, "partitions": [_active(call, name, index) for index in indexes]}
            for name, indexes in asked.items()
        ]
    }


def _active(call: Call, topic: str, index: int) -> Fields:
    if not call.allowed("READ", "TOPIC", topic):
        return {"partition_index": index, "error_code": ErrorCode.topic_authorization_failed}
    try:
        producers = call.broker.store.partition(topic, index).producers
    except LogError as error:
        return {"partition_index": index, "error_code": error.code, "error_message": error.message}
    active = [
        {
            "producer_id": producer_id,
            "producer_epoch": known.epoch,
            "last_sequence": known.recent[-1].last if known.recent else -1,
            "last_timestamp": known.timestamp,
            "current_txn_start_offset": producers.open.get(producer_id, -1),
        }
        for producer_id, known in producers.items()
    ]
    return {"partition_index": index, "active_producers": active}


def _producer(request: Any) -> Producer:
    return Producer(request.producer_id, request.producer_epoch)


def _check_transactional_id(call: Call, transactional_id: str) -> None:
    if not call.allowed("WRITE", "TRANSACTIONAL_ID", transactional_id):
        message = f"WRITE of transactional id {transactional_id!r} is not allowed"
        raise LogError(ErrorCode.transactional_id_authorization_failed, message)


@contextmanager
def _fencing_error_since(version: int, call: Call) -> Iterator[None]:
    """Replace PRODUCER_FENCED by the error code that older clients know."""
    try:
        yield
    except LogError as error:
        if error.code is ErrorCode.producer_fenced and call.version < version:
            raise LogError(ErrorCode.invalid_producer_epoch, error.message) from error
        raise


HANDLERS = {
    "init_producer_id": init_producer_id,
    "add_partitions_to_txn": add_partitions_to_txn,
    "add_offsets_to_txn": add_offsets_to_txn,
    "txn_offset_commit": txn_offset_commit,
    "end_txn": end_txn,
    "describe_transactions": describe_transactions,
    "list_transactions": list_transactions,
    "describe_producers": describe_producers,
}
