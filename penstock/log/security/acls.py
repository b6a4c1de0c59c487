"""Rights: who may do what with which resources, in Kafka's words and numbers. All pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Self

ANY_PRINCIPAL, ANY_HOST, ANY_NAME = "User:*", "*", "*"
ANONYMOUS = "User:ANONYMOUS"  # who did not have to say who they are
CLUSTER_NAME = "kafka-cluster"


class Resource(IntEnum):
    """What a right is about."""

    ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 1, 2, 3, 4, 5


class Pattern(IntEnum):
    """How a name is meant; ANY and MATCH only ask."""

    ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


class Operation(IntEnum):
    """What is done; ANY only asks."""

    ANY, ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 1, 2, 3, 4, 5, 6, 7, 8
    CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


class Permission(IntEnum):
    """What becomes of it; ANY only asks."""

    ANY, DENY, ALLOW = 1, 2, 3


_WORDS = {"resource": Resource, "pattern": Pattern, "operation": Operation, "permission": Permission}

# A right to the first is granted by a right to any of the others; a refusal spreads only from ALL.
_GRANTED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


@dataclass(frozen=True, order=True)
class Acl:
    """One line: a principal, from a host, is allowed or denied an operation on the resources of a pattern."""

    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Read what `to_json` gave."""
        words: dict[str, Any] = {key: word[kept[key]] for key, word in _WORDS.items()}
        return cls(**words, name=str(kept["name"]), principal=str(kept["principal"]), host=str(kept["host"]))

    def to_json(self) -> dict[str, str]:
        """Return it as it is kept on disk, in words."""
        return {key: value.name if key in _WORDS else value for key, value in asdict(self).items()}

    def covers(self, name: str) -> bool:
        """Say whether a resource of this name is meant."""
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def speaks_of(self, principal: str, host: str) -> bool:
        """Say whether it is about this principal from this host."""
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, ANY_HOST)

    def decides(self, operation: Operation) -> bool:
        """Say whether it allows, or denies, an operation."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in _GRANTED_BY.get(operation, ())

    def hides(self, other: Acl) -> bool:
        """Say whether its pattern holds every name of another's."""
        if self.pattern is Pattern.LITERAL and self.name == ANY_NAME:
            return True
        if other.pattern is Pattern.LITERAL:
            return other.name != ANY_NAME and self.covers(other.name)
        return self.pattern is Pattern.PREFIXED and other.name.startswith(self.name)


@dataclass(frozen=True)
class AclFilter:
    """A question for lines: None and ANY stand for everything, MATCH for the lines that concern a name."""

    resource: Resource = Resource.ANY
    name: str | None = None
    pattern: Pattern = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Say whether a line is asked for."""
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
    """Judge by the lines that speak of the caller and the kind of resource: a denial wins, silence denies."""
    deciding = {acl.permission for acl in acls if acl.decides(operation) and acl.covers(name)}
    return deciding == {Permission.ALLOW}


def is_allowed_somewhere(acls: Iterable[Acl], operation: Operation) -> bool:
    """Say whether some resource exists, or could, on which the operation is allowed."""
    deciding = [acl for acl in acls if acl.decides(operation)]
    denied = [acl for acl in deciding if acl.permission is Permission.DENY]
    allowed = (acl for acl in deciding if acl.permission is Permission.ALLOW)
    return any(not any(denial.hides(acl) for denial in denied) for acl in allowed)
