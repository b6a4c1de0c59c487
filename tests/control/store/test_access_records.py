"""Tokens, the audit log and idempotency keys, as they are stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.control.store.repositories.audit import AuditRecord
from penstock.control.store.repositories.idempotency import IdempotencyKey
from penstock.control.store.repositories.tokens import Token
from penstock.control.store.store import Store
from tests.control.store.clocks import SetClock

DAY = 86_400


def test_a_token_is_found_by_its_digest(store: Store, clock: SetClock) -> None:
    token = store.tokens.add(Token(id="t1", name="ci", role="operator", digest="abc", created_by="ada"))
    assert token.created_at == clock.now
    assert store.tokens.by_digest("abc") == token
    assert store.tokens.by_digest("abd") is None
    store.tokens.used("t1", clock.now + 5)
    (listed,) = store.tokens.all()
    assert listed.last_used_at == clock.now + 5
    assert "abc" not in repr(listed)


def test_a_revoked_token_is_kept_but_not_listed(store: Store) -> None:
    store.tokens.add(Token(id="t1", name="ci", role="operator", digest="abc"))
    assert store.tokens.revoke("t1")
    assert not store.tokens.revoke("t1")
    assert store.tokens.all() == []
    found = store.tokens.by_digest("abc")
    assert found is not None
    assert found.revoked


def test_a_secret_is_changed_listed_without_its_value_and_deleted(store: Store, clock: SetClock) -> None:
    first = store.secrets.put("CRM", "old", by="ada")
    clock.now += 10
    second = store.secrets.put("CRM", "topsecret", by="bob")
    assert (second.created_at, second.updated_at, second.updated_by) == (first.created_at, clock.now, "bob")
    assert store.secrets.value("CRM") == "topsecret"
    assert store.secrets.all() == [second]
    assert "topsecret" not in repr(second)
    assert store.secrets.delete("CRM")
    assert not store.secrets.delete("CRM")
    assert store.secrets.value("CRM") is None


def test_the_audit_log_is_read_from_its_end(store: Store, clock: SetClock) -> None:
    for number, who in enumerate(["ada", "bob", "ada"]):
        store.audit.add(
            AuditRecord(
                who=who, role="admin", action="stop_job", target=f"job {number}", outcome="202", detail={"n": 1}
            )
        )
    first = store.audit.page(limit=2)
    assert [(each.who, each.target, each.at) for each in first.items] == [
        ("ada", "job 2", clock.now),
        ("bob", "job 1", clock.now),
    ]
    assert [each.target for each in store.audit.page(cursor=first.next).items] == ["job 0"]
    assert [each.target for each in store.audit.page(who="ada").items] == ["job 2", "job 0"]
    assert [each.who for each in store.audit.page(target="job 1").items] == ["bob"]


def test_the_audit_log_is_kept_for_a_year(store: Store, clock: SetClock) -> None:
    store.audit.add(AuditRecord(who="ada", action="stop_job", target="a", outcome="202"))
    clock.advance(364 * DAY)
    store.prune()
    assert store.audit.page().items
    clock.advance(2 * DAY)
    store.prune()
    assert not store.audit.page().items


def test_a_key_belongs_to_the_first_request_for_a_day(store: Store, clock: SetClock) -> None:
    assert store.idempotency.claim("k", "digest", "job 1") is None
    first = IdempotencyKey("k", "digest", "job 1", clock.now)
    assert store.idempotency.claim("k", "other", "job 2") == first
    assert store.idempotency.find("k") == first
    clock.advance(DAY + 1)
    assert store.idempotency.find("k") is None
    assert store.idempotency.claim("k", "other", "job 2") is None
    clock.advance(DAY + 1)
    assert store.idempotency.prune(clock.now) == 1


def test_of_requests_at_the_same_time_one_gets_the_key(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: store.idempotency.claim("k", "d", f"job {number}"), range(8)))
    assert answers.count(None) == 1
    assert len({answer.job for answer in answers if answer is not None}) == 1
