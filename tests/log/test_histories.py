"""The judge of histories finds each kind of fault, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.log.histories import Decision, History, Place, Seen, Sent, judge, judge_outputs

LEFT: Place = ("left", 0)
RIGHT: Place = ("right", 0)
GOOD = [Seen(LEFT, 0, "p/1"), Seen(LEFT, 1, "p/2"), Seen(RIGHT, 0, "p/3")]
SENT = [Sent("p", 1, LEFT, offset=0), Sent("p", 2, LEFT, offset=1), Sent("p", 3, RIGHT, offset=0)]
IN_TRANSACTION = [sent._replace(transaction="t") for sent in SENT]


def kinds(
    committed: Sequence[Seen],
    sent: Sequence[Sent] = SENT,
    decision: Decision = "committed",
    uncommitted: Sequence[Seen] | None = None,
) -> set[str]:
    history = History(list(sent), {"t": decision}, [committed], [] if uncommitted is None else [uncommitted])
    return {finding.kind for finding in judge(history)}


@pytest.mark.parametrize("sent", [SENT, IN_TRANSACTION])
def test_a_good_history_has_no_findings(sent: list[Sent]) -> None:
    assert kinds(GOOD, sent, uncommitted=GOOD) == set()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_acknowledged_record_that_is_not_there_is_lost(at: int) -> None:
    rest = [*GOOD[:at], *GOOD[at + 1 :]]
    assert kinds(rest) == {"lost"}
    assert kinds(GOOD, uncommitted=rest) == {"lost"}


def test_a_record_without_an_answer_may_be_there_or_not() -> None:
    sent = [SENT[0], SENT[1]._replace(outcome="unknown"), SENT[2]]
    assert kinds(GOOD, sent) == set()
    assert kinds([GOOD[0], GOOD[2]], sent) == set()


def test_a_record_at_two_offsets_is_duplicated() -> None:
    assert kinds([*GOOD, Seen(RIGHT, 1, "p/3")]) == {"duplicated"}
    assert kinds([*GOOD, Seen(LEFT, 2, "p/2")]) == {"duplicated"}


def test_a_duplicate_without_acknowledgement_is_found_too() -> None:
    sent = [Sent("p", 1, LEFT, "unknown")]
    assert kinds([Seen(LEFT, 0, "p/1"), Seen(LEFT, 1, "p/1")], sent) == {"duplicated"}


def test_records_in_another_order_than_sent_are_reordered() -> None:
    sent = [one._replace(offset=-1) for one in SENT]
    assert kinds([Seen(LEFT, 0, "p/2"), Seen(LEFT, 1, "p/1"), GOOD[2]], sent) == {"reordered"}


def test_the_order_of_two_producers_or_partitions_is_free() -> None:
    sent = [Sent("p", 1, LEFT), Sent("q", 1, LEFT), Sent("p", 2, RIGHT), Sent("p", 3, LEFT)]
    read = [Seen(LEFT, 0, "q/1"), Seen(LEFT, 1, "p/1"), Seen(LEFT, 2, "p/3"), Seen(RIGHT, 0, "p/2")]
    assert kinds(read, sent) == set()


def test_an_acknowledged_offset_that_holds_another_record_is_a_lie() -> None:
    read = [Seen(LEFT, 0, "p/1"), Seen(LEFT, 2, "p/2"), Seen(LEFT, 1, "q/1"), GOOD[2]]
    assert kinds(read, [*SENT, Sent("q", 1, LEFT)]) == {"misplaced"}


def test_an_offset_that_holds_something_else_later_has_changed() -> None:
    history = History(list(SENT), {}, [[Seen(LEFT, 1, "p/9")], GOOD])
    assert {finding.kind for finding in judge(history)} == {"changed"}


def test_an_offset_that_differs_between_the_isolation_levels_has_changed() -> None:
    other = [Seen(LEFT, 0, "q/1"), Seen(LEFT, 2, "p/1"), Seen(LEFT, 3, "p/2"), GOOD[2]]
    sent = [*(one._replace(offset=-1) for one in SENT), Sent("q", 1, LEFT, "unknown")]
    assert kinds(GOOD, sent, uncommitted=other) == {"changed"}


def test_a_record_that_nobody_sent_is_a_phantom() -> None:
    assert kinds([*GOOD, Seen(LEFT, 2, "p/4")]) == {"phantom"}


def test_a_record_on_another_partition_is_a_phantom_and_lost() -> None:
    assert kinds([*GOOD[:2], Seen(("right", 1), 0, "p/3")]) == {"phantom", "lost"}


def test_a_refused_record_that_is_there_is_found() -> None:
    assert kinds(GOOD, [*SENT[:2], SENT[2]._replace(outcome="refused")]) == {"refused"}


def test_an_aborted_record_is_seen_by_readers_of_uncommitted_records_only() -> None:
    assert kinds([], IN_TRANSACTION, "aborted", uncommitted=GOOD) == set()
    assert kinds(GOOD, IN_TRANSACTION, "aborted") == {"aborted"}


def test_an_aborted_record_that_an_earlier_reader_saw_is_found() -> None:
    history = History(list(IN_TRANSACTION), {"t": "aborted"}, [GOOD[:1], []])
    assert {finding.kind for finding in judge(history)} == {"aborted"}


def test_a_transaction_of_unknown_outcome_is_there_wholly_or_not_at_all() -> None:
    assert kinds(GOOD, IN_TRANSACTION, "unknown") == set()
    assert kinds([], IN_TRANSACTION, "unknown") == set()
    assert kinds(GOOD[:2], IN_TRANSACTION, "unknown") == {"partial"}
    assert kinds(GOOD[2:], IN_TRANSACTION, "unknown") == {"partial"}


def test_a_committed_transaction_that_is_missing_is_lost() -> None:
    assert kinds([], IN_TRANSACTION, "committed") == {"lost"}
    assert kinds(GOOD[:1], IN_TRANSACTION, "committed") == {"lost", "partial"}


def output_kinds(outputs: Sequence[str], position: int) -> set[str]:
    inputs = [Seen(LEFT, 0, "p/1"), Seen(LEFT, 3, "p/2")]
    return {finding.kind for finding in judge_outputs(inputs, outputs, {LEFT: position})}


def test_each_input_before_the_committed_position_has_one_output() -> None:
    assert output_kinds(["p/1", "p/2"], 4) == set()
    assert output_kinds(["p/1"], 1) == set()
    assert output_kinds([], 0) == set()


def test_an_input_without_output_before_the_committed_position_was_skipped() -> None:
    assert output_kinds(["p/1"], 4) == {"skipped"}


def test_an_input_with_two_outputs_was_repeated() -> None:
    assert output_kinds(["p/1", "p/1"], 1) == {"repeated"}


def test_an_output_whose_position_is_not_committed_is_half_a_transaction() -> None:
    assert output_kinds(["p/1", "p/2"], 1) == {"partial"}


def test_an_output_of_an_input_that_is_gone_is_a_phantom() -> None:
    assert output_kinds(["p/1", "p/9"], 1) == {"phantom"}
