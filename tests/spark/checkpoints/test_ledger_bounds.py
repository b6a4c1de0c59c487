"""Promise: the bounds in a ledger identify the input of its newest epoch, also those that earlier versions stored."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts import Sink
from penstock.errors import LedgerAhead
from penstock.spark.epochs.bounds import bounds_of, ordered_bounds
from penstock.spark.epochs.epoch_names import EpochNames
from penstock.spark.epochs.ledgers import Ledgers
from penstock.storage.folders import folder

AB, BA = [{"0": 5}, {"0": 7}], [{"0": 7}, {"0": 5}]


class Knowing(Sink):
    """A sink whose ledger has these epochs."""

    name = "own"

    def __init__(self, newest: Mapping[int, str]) -> None:
        self._newest = newest

    def newest_epochs(self, lineage: str, sink: str) -> Mapping[int, str]:
        return self._newest


def _plan(query: Path, ends: list[dict[str, Any]], epoch: int = 0) -> str:
    """Write an epoch to Spark's offset log, and return its bounds."""
    lines = list(map(json.dumps, ends))
    (query / "offsets").mkdir(parents=True, exist_ok=True)
    (query / "offsets" / str(epoch)).write_text("\n".join(["v1", "{}", *lines]))
    return ordered_bounds(lines)


def _ledgers(query: Path, bounds: str) -> Ledgers:
    return Ledgers(folder(query), folder(query), [(Knowing({0: bounds}), "own")], EpochNames("a1", "final"), -1)


def test_an_epoch_with_the_same_input_is_known(tmp_path: Path) -> None:
    bounds = _plan(tmp_path, AB)
    _ledgers(tmp_path, bounds).start(0, bounds)


@pytest.mark.parametrize("other", [[{"0": 5}, {"0": 8}], [{"0": 5}], BA])
def test_an_epoch_with_other_input_is_refused(tmp_path: Path, other: list[dict[str, Any]]) -> None:
    bounds = _plan(tmp_path, AB)
    _plan(tmp_path, other)
    with pytest.raises(LedgerAhead, match="has epoch 0 with other input than checkpoint"):
        _ledgers(tmp_path, bounds)


def test_without_a_committed_epoch_no_savepoint_is_advised(tmp_path: Path) -> None:
    with pytest.raises(LedgerAhead) as error:
        _ledgers(tmp_path, "")
    hint = str(error.value.hint)
    assert "start over with another --checkpoint folder" in hint
    assert "are in the sinks twice, unless you empty these first" in hint
    assert "savepoint" not in hint


def test_the_advised_commands_are_valid_whatever_the_path(tmp_path: Path) -> None:
    query = tmp_path / "it's mine (old)"
    _plan(query, AB)
    (query / "commits").mkdir()
    (query / "commits" / "0").write_text("v1")
    (query / "offsets" / "0").unlink()
    with pytest.raises(LedgerAhead) as error:
        Ledgers(folder(query), folder(query), [(Knowing({1: ""}), "own")], EpochNames("a1", "final"), -1)
    lines = [shlex.split(line) for line in str(error.value.hint).splitlines() if "penstock" in line]
    assert lines == [
        ["penstock", "savepoint", "create", str(query), "--name", "it-s-mine-old-older"],
        ["penstock", "savepoint", "restore", "it-s-mine-old-older", "--checkpoint", f"{query}-restored"],
    ]


def test_an_epoch_that_was_started_without_offsets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerAhead, match="has started epoch 1, and its offsets are lost"):
        Ledgers(folder(tmp_path), folder(tmp_path), [], EpochNames("a1", "final"), 1)


@pytest.mark.parametrize("bounds", ["", bounds_of(AB)])
def test_what_an_earlier_version_stored_for_the_same_input_is_known(tmp_path: Path, bounds: str) -> None:
    planned = _plan(tmp_path, AB)
    _ledgers(tmp_path, bounds).start(0, planned)


def test_what_an_earlier_version_stored_for_other_input_is_refused(tmp_path: Path) -> None:
    _plan(tmp_path, AB)
    with pytest.raises(LedgerAhead, match="has epoch 0 with other input than checkpoint"):
        _ledgers(tmp_path, bounds_of([{"0": 5}, {"0": 8}]))


@pytest.mark.parametrize("ends", [AB, BA])
def test_an_epoch_that_is_planned_again_after_a_repair_must_have_the_input_that_the_ledger_has(
    tmp_path: Path, ends: list[dict[str, Any]]
) -> None:
    bounds = ordered_bounds(list(map(json.dumps, AB)))
    (tmp_path / "replay.json").write_text(json.dumps({"b": {"0": {"0": 7}}, "a": {"0": {"0": 5}}}))
    ledgers = _ledgers(tmp_path, bounds)
    again = _plan(tmp_path, ends)
    if ends == AB:
        ledgers.start(0, again)
        return
    with pytest.raises(LedgerAhead, match="has epoch 0 with other input than it has now"):
        ledgers.start(0, again)
