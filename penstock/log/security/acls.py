"""ACLs in Kafka's terms and numbers, and the authorizer that checks every request against them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

from penstock.log.security.users import Users
from penstock.storage.durable_files import JsonFile, damaged_file

ANY_PRINCIPAL, ANY_HOST, ANY_NAME = "User:*", "*", "*"
ANONYMOUS = "User:ANONYMOUS"  # the principal of clients without authentication
CLUSTER_NAME = "kafka-cluster"
FILE_NAME = "acls.json"
_CACHED = 20_000
_Question = tuple[str, str, str, str, str | None]


class Resource(IntEnum):
    """The type of a resource."""

    ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 1, 2, 3, 4, 5


class Pattern(IntEnum):
    """The type of a resource pattern; ANY and MATCH only occur in filters."""

    ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


class Operation(IntEnum):
    """An operation; ANY only occurs in filters."""

    ANY, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 1, 2, 3, 4, 5, 6, 7, 8
    CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


class Permission(IntEnum):
    """Allow or deny; ANY only occurs in filters."""

    ANY, DENY, ALLOW = 1, 2, 3


_WORDS = {"resource": Resource, "pattern": Pattern, "operation": Operation, "permission": Permission}


# The first operation is implied by any of the others if they are allowed; a denial is only implied by ALL.
_GRANTED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


@dataclass(frozen=True, order=True)
class Acl:
    """A principal, from a host, is allowed or denied an operation on the resources of a pattern."""

    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Decode the result of `to_json`."""
        words: dict[str, Any] = {key: word[kept[key]] for key, word in _WORDS.items()}
        return cls(**words, name=str(kept["name"]), principal=str(kept["principal"]), host=str(kept["host"]))

    def to_json(self) -> dict[str, str]:
        """Encode it for the file, with names of the enums."""
        return {key: value.name if key in _WORDS else value for key, value in asdict(self).items()}

    def covers(self, name: str) -> bool:
        """Return whether the pattern matches a resource name."""
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def applies_to(self, principal: str, host: str) -> bool:
        """Return whether it applies to this principal from this host."""
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, ANY_HOST)

    def decides(self, operation: Operation) -> bool:
        """Return whether it allows or denies an operation."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _GRANTED_BY.get(operation, ())

    def includes(self, other: Acl) -> bool:
        """Return whether its pattern matches every name that another's matches."""
        if self.pattern is Pattern.LITERAL and self.name == ANY_NAME:
            return True
        if other.pattern is Pattern.LITERAL:
            return other.name != ANY_NAME and self.covers(other.name)
        return self.pattern is Pattern.PREFIXED and other.name.startswith(self.name)


@dataclass(frozen=True)
class AclFilter:
    """A filter for ACLs: None and ANY match everything, MATCH the ACLs that apply to a name."""

    resource: Resource = Resource.ANY
    name: str | None = None
    pattern: Pattern = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL matches."""
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.pattern is Pattern.MATCH:
            return self.name is None or acl.covers(self.name)
        return self.name in (None, acl.name)


def is_allowed(acls: Iterable[Acl], operation: Operation, name: str) -> bool:
    """Evaluate the ACLs of a principal and resource type: a denial wins, no match denies."""
    deciding = {acl.permission for acl in acls if acl.decides(operation) and acl.covers(name)}
    return deciding == {Permission.ALLOW}


def is_allowed_somewhere(acls: Iterable[Acl], operation: Operation) -> bool:
    """Return whether the operation is allowed on some resource, existing or not."""
    deciding = [acl for acl in acls if acl.decides(operation)]
    denied = [acl for acl in deciding if acl.permission is Permission.DENY]
    allowed = (acl for acl in deciding if acl.permission is Permission.ALLOW)
    return any(not any(denial.includes(acl) for denial in denied) for acl in allowed)


class Authorizer:
    """Authorizes requests: super users may do everything, others what ACLs allow.

    `allowed` uses a cache, so that it can be called for every partition of every request.
    """

    def __init__(self, data: Path, users: Users | None = None, super_users: Iterable[str] = ()) -> None:
        self._file = JsonFile(data / FILE_NAME)
        self._users = users
        self._super = frozenset(super_users)
        self._answers: dict[_Question, bool] = {}
        self._revision = 0
        self._load()

    def allowed(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """Return whether a principal ("User:alice") is allowed an operation on a resource."""
        question = (principal, host, operation, resource_type, name)
        answer = self._answers.get(question)
        return self._decide(question) if answer is None else answer

    def allowed_somewhere(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """Return whether a principal is allowed an operation on any resource of a type (for idempotent producers)."""
        question = (principal, host, operation, resource_type, None)
        answer = self._answers.get(question)
        return self._decide(question) if answer is None else answer

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that match a filter."""
        self.refresh()
        return sorted(filter(wanted.matches, self._acls))

    def add(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; existing ones stay."""
        self.refresh()
        self._store(self._acls | set(acls))

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove ACLs."""
        self.refresh()
        self._store(self._acls - set(acls))

    def refresh(self) -> None:
        """Reload ACLs and super users if another process changed them; called at every login."""
        if self._file.changed:
            self._load()
            self._answers.clear()
        if self._users is not None:
            self._users.refresh()
            self._notice(self._users.revision)

    def _notice(self, revision: int) -> None:
        if revision != self._revision:
            self._revision = revision
            self._answers.clear()

    def _decide(self, question: _Question) -> bool:
        principal, host, operation, resource_type, name = question
        # Clients choose the names; they could fill an unbounded cache.
        if len(self._answers) >= _CACHED:
            self._answers.clear()
        answer = self.is_super(principal) or self._evaluate(principal, host, operation, resource_type, name)
        self._answers[question] = answer
        return answer

    def _evaluate(self, principal: str, host: str, operation: str, resource_type: str, name: str | None) -> bool:
        kind, wanted = Resource[resource_type], Operation[operation]
        acls = (acl for acl in self._acls if acl.resource is kind and acl.applies_to(principal, host))
        return is_allowed_somewhere(acls, wanted) if name is None else is_allowed(acls, wanted, name)

    def is_super(self, principal: str) -> bool:
        """Return whether a principal is a super user."""
        if principal in self._super:
            return True
        user = self._users.get(principal.removeprefix("User:")) if self._users is not None else None
        return user is not None and user.is_super

    @property
    def cached(self) -> int:
        """How many decisions are cached."""
        return len(self._answers)

    def _store(self, acls: set[Acl]) -> None:
        self._file.write({"version": 1, "acls": [acl.to_json() for acl in sorted(acls)]})
        self._acls = acls
        self._answers.clear()

    def _load(self) -> None:
        kept = self._file.read()
        try:
            self._acls = {Acl.from_json(each) for each in kept.get("acls", [])}
        except (AttributeError, KeyError, TypeError) as error:
            raise damaged_file(self._file.path, f"no ACLs can be read from it ({type(error).__name__})") from None
