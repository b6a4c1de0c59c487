from __future__ import annotations

import pytest

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.store import Store
from penstock.errors import UnknownJob
from tests.control.store.clocks import SetClock


@pytest.fixture(autouse=True)
def job(store: Store) -> None:
    store.jobs.create(Job(id="a", name="first"))


def test_open_commands_are_read_in_their_order(store: Store) -> None:
    added = [store.commands.add("a", kind, {"n": 1}, "ada") for kind in ("stop", "restart", "cancel")]
    assert store.commands.open() == added
    assert store.commands.open(limit=1) == added[:1]
    assert store.commands.get(added[1].id) == added[1]


def test_a_command_is_finished_once(store: Store, clock: SetClock) -> None:
    stop, restart = (store.commands.add("a", kind) for kind in ("stop", "restart"))
    clock.advance(2)
    assert store.commands.finish(stop.id, message="stopped")
    assert store.commands.finish(restart.id, failed=True, message="no")
    assert not store.commands.finish(stop.id, failed=True)
    assert store.commands.open() == []
    done = store.commands.get(stop.id)
    assert (done.state, done.message, done.done_at) == ("done", "stopped", clock.now)
    assert [each.state for each in store.commands.page("a").items] == ["failed", "done"]


@pytest.mark.parametrize("command", ["", "x", "-1", "1.5", "9" * 30, "٣", "999999"])
def test_an_unknown_command_is_an_error(store: Store, command: str) -> None:
    with pytest.raises(UnknownJob):
        store.commands.get(command)
    assert not store.commands.finish(command)


def test_open_commands_are_kept_and_finished_ones_for_a_month(store: Store, clock: SetClock) -> None:
    first, second = (store.commands.add("a", kind) for kind in ("stop", "restart"))
    store.commands.finish(first.id)
    clock.advance(30 * 86_400 + 1)
    store.prune()
    assert store.commands.page("a").items == (second,)


def test_a_number_is_not_used_again_after_its_command_was_deleted(store: Store, clock: SetClock) -> None:
    first = store.commands.add("a", "stop")
    store.commands.finish(first.id)
    clock.advance(31 * 86_400)
    store.prune()
    assert int(store.commands.add("a", "stop").id) > int(first.id)
