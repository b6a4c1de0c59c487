"""The rights of a data folder, asked on every request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.log.security.acls import Acl, AclFilter, Operation, Resource, is_allowed, is_allowed_somewhere
from penstock.log.security.documents import Document, damaged
from penstock.log.security.users import Users

FILE_NAME = "acls.json"
_CACHED = 20_000
_Question = tuple[str, str, str, str, str | None]


class Access:
    """Who may do what: super users everything, others what ACLs allow, nobody anything else.

    `allowed` answers from a cache, so that it may be asked for every partition of every request.
    """

    def __init__(self, data: Path, users: Users | None = None, super_users: Iterable[str] = ()) -> None:
        self._file = Document(data / FILE_NAME)
        self._users = users
        self._super = frozenset(super_users)
        self._answers: dict[_Question, bool] = {}
        self._revision = 0
        self._load()

    def allowed(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        """Say whether a principal ("User:alice") may do something with a resource."""
        question = (principal, host, operation, resource_type, name)
        answer = self._answers.get(question)
        return self._decide(question) if answer is None else answer

    def allowed_somewhere(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """Say whether a principal may do something with any resource of a kind (an idempotent producer must)."""
        question = (principal, host, operation, resource_type, None)
        answer = self._answers.get(question)
        return self._decide(question) if answer is None else answer

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter asks for."""
        self.refresh()
        return sorted(filter(wanted.matches, self._acls))

    def add(self, acls: Iterable[Acl]) -> None:
        """Add ACLs; those that are there already stay."""
        self.refresh()
        self._store(self._acls | set(acls))

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove ACLs."""
        self.refresh()
        self._store(self._acls - set(acls))

    def refresh(self) -> None:
        """Take in what another process changed, and who became a super user; asked at every login."""
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
        # Names are the callers' choice; a cache without a bound would be theirs to fill.
        if len(self._answers) >= _CACHED:
            self._answers.clear()
        answer = self.is_super(principal) or self._judge(principal, host, operation, resource_type, name)
        self._answers[question] = answer
        return answer

    def _judge(self, principal: str, host: str, operation: str, resource_type: str, name: str | None) -> bool:
        kind, wanted = Resource[resource_type], Operation[operation]
        acls = (acl for acl in self._acls if acl.resource is kind and acl.speaks_of(principal, host))
        return is_allowed_somewhere(acls, wanted) if name is None else is_allowed(acls, wanted, name)

    def is_super(self, principal: str) -> bool:
        """Say whether a principal may do everything."""
        if principal in self._super:
            return True
        user = self._users.get(principal.removeprefix("User:")) if self._users is not None else None
        return user is not None and user.is_super

    @property
    def held(self) -> int:
        """How many answers are remembered."""
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
            raise damaged(self._file.path, f"no ACLs can be read from it ({type(error).__name__})") from None
