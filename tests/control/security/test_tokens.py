from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.security.roles import Principal, Role
from penstock.control.security.tokens import Access, digest
from penstock.control.store.store import Store
from penstock.errors import BadValue
from tests.control.store.clocks import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(tmp_path: Path, clock: SetClock) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'penstock.db'}", clock=clock) as store:
        store.migrate()
        yield store


@pytest.fixture
def access(store: Store, clock: SetClock) -> Access:
    return Access(store.tokens, clock=clock)


def test_the_holder_of_a_token_is_known_by_it(access: Access) -> None:
    created = access.create("ci", Role.OPERATOR, created_by="ada")
    assert created.text.startswith("pst_")
    assert access.authenticate(created.text) == Principal("ci", Role.OPERATOR, created.token.id)


def test_the_text_of_a_token_is_nowhere_in_the_store(access: Access, store: Store, tmp_path: Path) -> None:
    text = access.create("ci", Role.ADMIN).text
    store.close()
    for file in tmp_path.iterdir():
        assert text.encode() not in file.read_bytes()
    assert text not in repr(access.create("other", Role.ADMIN))


@pytest.mark.parametrize("wrong", ["", "pst_", "pst_x", "\0", "\ud800", "x" * 10_000])
def test_a_wrong_token_has_no_holder(access: Access, wrong: str) -> None:
    created = access.create("ci", Role.ADMIN)
    assert access.authenticate(wrong) is None
    assert access.authenticate(created.text[:-1]) is None
    assert access.authenticate(created.text + "x") is None
    assert access.authenticate(created.token.digest) is None


def test_tokens_differ(access: Access) -> None:
    texts = {access.create("ci", Role.VIEWER).text for _ in range(20)}
    assert len(texts) == len({digest(text) for text in texts}) == 20
    assert {len(text) for text in texts} == {len("pst_") + 43}


def test_an_expired_token_has_no_holder(access: Access, clock: SetClock) -> None:
    created = access.create("ci", Role.VIEWER, expires_at=clock.now + 10)
    clock.advance(9)
    assert access.authenticate(created.text)
    clock.advance(1)
    assert access.authenticate(created.text) is None


def test_a_token_cannot_be_created_expired(access: Access, clock: SetClock) -> None:
    with pytest.raises(BadValue, match="expired already"):
        access.create("ci", Role.VIEWER, expires_at=clock.now)


def test_a_revoked_token_has_no_holder(access: Access) -> None:
    created = access.create("ci", Role.VIEWER)
    assert access.revoke(created.token.id)
    assert not access.revoke(created.token.id)
    assert access.authenticate(created.text) is None


def test_the_last_use_is_stored_at_most_every_minute(access: Access, store: Store, clock: SetClock) -> None:
    created = access.create("ci", Role.VIEWER)
    start = clock.now
    for after, stored in ((5, 5), (30, 5), (64, 5), (65, 65)):
        clock.now = start + after
        access.authenticate(created.text)
        assert store.tokens.all()[0].last_used_at == start + stored


def test_a_token_is_required_as_soon_as_there_is_one(access: Access) -> None:
    assert not access.required()
    created = access.create("ci", Role.ADMIN)
    assert access.required()
    access.revoke(created.token.id)
    assert not access.required()


def test_a_token_that_another_manager_created_is_required_after_seconds(
    access: Access, store: Store, clock: SetClock
) -> None:
    assert not access.required()
    Access(store.tokens, clock=clock).create("ci", Role.ADMIN)
    clock.advance(5)
    assert access.required()


def test_a_token_is_always_required_beyond_loopback(store: Store) -> None:
    assert Access(store.tokens, open_to_others=True).required()
