"""Rights, held against a naive reading of Kafka's rules."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SettingsError
from penstock.log.security.acls import (
    Acl,
    AclFilter,
    Authorizer,
    Operation,
    Pattern,
    Permission,
    Resource,
    is_allowed,
    is_allowed_somewhere,
)
from penstock.log.security.users import Users

NAMES = ["a", "ab", "abc", "b", "*"]
acls = st.builds(
    Acl,
    st.sampled_from([Resource.TOPIC, Resource.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([each for each in Operation if each is not Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def allow(operation: Operation, name: str, pattern: Pattern = Pattern.LITERAL, who: str = "User:alice") -> Acl:
    return Acl(Resource.TOPIC, name, pattern, who, "*", operation, Permission.ALLOW)


def deny(operation: Operation, name: str, pattern: Pattern = Pattern.LITERAL, who: str = "User:alice") -> Acl:
    return Acl(Resource.TOPIC, name, pattern, who, "*", operation, Permission.DENY)


def naive(lines: list[Acl], who: str, host: str, operation: Operation, kind: Resource, name: str) -> bool:
    """Kafka's rules, one after the other and without a thought for speed."""
    grants = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        grants |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        grants |= {Operation.ALTER_CONFIGS}
    allowed = False
    for line in lines:
        if line.resource != kind or line.principal not in (who, "User:*") or line.host not in (host, "*"):
            continue
        literal = line.pattern == Pattern.LITERAL and line.name in (name, "*")
        if not literal and not (line.pattern == Pattern.PREFIXED and name.startswith(line.name)):
            continue
        if line.permission == Permission.DENY and line.operation in (operation, Operation.ALL):
            return False
        allowed = allowed or (line.permission == Permission.ALLOW and line.operation in grants)
    return allowed


@given(st.lists(acls, max_size=8), st.sampled_from(list(Operation)[2:]))
def test_access_agrees_with_a_naive_reading_of_the_rules(lines: list[Acl], operation: Operation) -> None:
    access = Authorizer(Path("no-such-folder"))
    access._acls = set(lines)
    asked = product(["User:alice", "User:eve"], ["10.0.0.1", "10.0.0.2"], [Resource.TOPIC, Resource.GROUP], NAMES)
    for who, host, kind, name in asked:
        expected = naive(lines, who, host, operation, kind, name)
        for _ in range(2):  # the second answer is the cache's
            assert access.allowed(who, host, operation.name, kind.name, name) is expected


@given(st.lists(acls.filter(lambda acl: acl.resource is Resource.TOPIC), max_size=6))
def test_somewhere_holds_wherever_a_name_can_be_found(lines: list[Acl]) -> None:
    names = [*NAMES, "abcd", "z", "**", "*a", "bb"]
    found = any(is_allowed(lines, Operation.WRITE, name) for name in names)
    assert is_allowed_somewhere(lines, Operation.WRITE) or not found


def test_somewhere_is_not_fooled_by_a_grant_that_a_denial_covers() -> None:
    granted = allow(Operation.WRITE, "orders")
    assert is_allowed_somewhere([granted], Operation.WRITE)
    assert not is_allowed_somewhere([granted, deny(Operation.WRITE, "ord", Pattern.PREFIXED)], Operation.WRITE)
    assert not is_allowed_somewhere([granted, deny(Operation.ALL, "*")], Operation.WRITE)
    assert is_allowed_somewhere([granted, deny(Operation.WRITE, "other")], Operation.WRITE)


def test_nothing_is_allowed_where_nothing_is_said(tmp_path: Path) -> None:
    access = Authorizer(tmp_path)
    assert not access.allowed("User:alice", "h", "DESCRIBE", "TOPIC", "orders")


def test_a_denial_wins_and_reading_lets_one_describe(tmp_path: Path) -> None:
    access = Authorizer(tmp_path)
    access.add([allow(Operation.READ, "or", Pattern.PREFIXED), deny(Operation.READ, "orders-secret")])
    asked = [("READ", "orders"), ("DESCRIBE", "orders"), ("WRITE", "orders"), ("READ", "orders-secret"), ("READ", "x")]
    answers = [access.allowed("User:alice", "h", operation, "TOPIC", name) for operation, name in asked]
    assert answers == [True, True, False, False, False]


def test_a_change_is_seen_at_once_and_after_a_restart(tmp_path: Path) -> None:
    access = Authorizer(tmp_path)
    question = ("User:alice", "h", "READ", "TOPIC", "orders")
    assert not access.allowed(*question)
    access.add([allow(Operation.READ, "orders")])
    assert access.allowed(*question)
    assert Authorizer(tmp_path).allowed(*question)
    access.remove(access.find(AclFilter()))
    assert not access.allowed(*question)
    assert not Authorizer(tmp_path).allowed(*question)


def test_super_users_may_do_everything_until_they_are_none_any_more(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.add("root", "pencil", is_super=True)
    access = Authorizer(tmp_path, users, super_users=["User:CN=ops"])
    access.add([deny(Operation.ALL, "*", who="User:*")])
    assert access.allowed("User:root", "h", "DELETE", "TOPIC", "orders")
    assert access.allowed("User:CN=ops", "h", "DELETE", "TOPIC", "orders")
    assert not access.allowed("User:alice", "h", "DELETE", "TOPIC", "orders")
    Users(tmp_path).remove("root")
    access.refresh()
    assert not access.allowed("User:root", "h", "DELETE", "TOPIC", "orders")


def test_an_empty_table_of_users_still_counts_as_one(tmp_path: Path) -> None:
    users = Users(tmp_path)
    access = Authorizer(tmp_path, users)
    assert not access.allowed("User:root", "h", "DELETE", "TOPIC", "orders")
    Users(tmp_path).add("root", "pencil", is_super=True)
    access.refresh()
    assert access.allowed("User:root", "h", "DELETE", "TOPIC", "orders")


def test_the_cache_has_a_bound(tmp_path: Path) -> None:
    access = Authorizer(tmp_path)
    for number in range(21_000):
        access.allowed("User:alice", "h", "READ", "TOPIC", f"topic-{number}")
    assert len(access._answers) <= 20_000


LINES = [
    allow(Operation.READ, "orders"),
    allow(Operation.READ, "ord", Pattern.PREFIXED),
    deny(Operation.WRITE, "*"),
    allow(Operation.READ, "other", who="User:bob"),
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(), [0, 1, 2, 3]),
        (AclFilter(resource=Resource.GROUP), []),
        (AclFilter(name="orders"), [0]),
        (AclFilter(name="orders", pattern=Pattern.LITERAL), [0]),
        (AclFilter(name="orders", pattern=Pattern.PREFIXED), []),
        (AclFilter(name="orders", pattern=Pattern.MATCH), [0, 1, 2]),
        (AclFilter(pattern=Pattern.MATCH), [0, 1, 2, 3]),
        (AclFilter(pattern=Pattern.PREFIXED), [1]),
        (AclFilter(name="*"), [2]),
        (AclFilter(principal="User:bob"), [3]),
        (AclFilter(host="10.0.0.1"), []),
        (AclFilter(operation=Operation.WRITE), [2]),
        (AclFilter(permission=Permission.ALLOW), [0, 1, 3]),
    ],
)
def test_filters_find_what_kafkas_find(tmp_path: Path, wanted: AclFilter, expected: list[int]) -> None:
    access = Authorizer(tmp_path)
    access.add(LINES)
    assert access.find(wanted) == sorted(LINES[each] for each in expected)


def test_a_damaged_file_stops_the_start_instead_of_opening_the_log(tmp_path: Path) -> None:
    (tmp_path / "acls.json").write_text('{"acls": [{"resource": "TOPIC"}]}')
    with pytest.raises(SettingsError, match=r"acls\.json is damaged"):
        Authorizer(tmp_path)
