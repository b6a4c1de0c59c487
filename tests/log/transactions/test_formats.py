"""The transaction log in Kafka's format, so that Kafka's own tools read it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.transactions.formats import decode, encode
from penstock.log.transactions.state_machine import Producer, State, Transaction

NAMES = st.text(min_size=1, max_size=20)
TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=NAMES,
    producer=st.builds(Producer, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
    timeout=st.integers(1, 900_000),
    state=st.sampled_from([state for state in State if state is not State.DEAD]),
    partitions=st.frozensets(st.tuples(NAMES, st.integers(0, 2**31 - 1)), max_size=6),
    started=st.integers(-1, 2**50),
    updated=st.integers(-1, 2**50),
)


@given(TRANSACTIONS)
def test_what_is_written_is_read_again(transaction: Transaction) -> None:
    if transaction.state is State.EMPTY:
        transaction = replace(transaction, partitions=frozenset())
    assert decode(encode(transaction, 5)) == (transaction.transactional_id, transaction)


def test_a_forgotten_id_is_a_tombstone() -> None:
    record = encode(Transaction("pay", Producer(1, 0), state=State.DEAD), 5)
    assert record.value is None
    assert decode(record) == ("pay", None)


def test_the_bytes_are_those_of_kafka() -> None:
    partitions = frozenset({("a", 2), ("a", 1), ("b", 0)})
    record = encode(Transaction("pay", Producer(7, 3), 60_000, State.PREPARE_COMMIT, partitions, 10, 11), 5)
    assert record.key == bytes.fromhex("0000 0003 706179")
    assert record.value == bytes.fromhex(
        "0000"  # version
        "0000000000000007 0003 0000ea60 02"  # producer id, epoch, timeout, state
        "00000002"  # topics
        "0001 61 00000002 00000001 00000002"
        "0001 62 00000001 00000000"
        "000000000000000b 000000000000000a"  # last update, start
    )


def test_an_empty_one_has_no_list_of_partitions() -> None:
    record = encode(Transaction("pay", Producer(7, 3)), 5)
    assert (record.value or b"")[17:21] == b"\xff\xff\xff\xff"
