"""Roles: each may do what those before it may."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import AccessDenied, BadValue, choices


class Role(StrEnum):
    """What the holder of a token may do; the order is that of the rights."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """The place in the order of rights."""
        return list(Role).index(self)

    def includes(self, other: Role) -> bool:
        """Return whether this role has all rights of another."""
        return self.rank >= other.rank


class Action(StrEnum):
    """What can be asked for, as far as rights differ."""

    READ = "read"  # jobs, metrics, logs, state, topics
    CHANGE_JOBS = "change_jobs"  # submit, stop, cancel, restart, rescale, update, delete
    ADMINISTER = "administer"  # tokens, the audit log


_NEEDS = {Action.READ: Role.VIEWER, Action.CHANGE_JOBS: Role.OPERATOR, Action.ADMINISTER: Role.ADMIN}


@dataclass(frozen=True)
class Principal:
    """The holder of a token: `name` is that of the token, `token` its id."""

    name: str
    role: Role
    token: str = ""


def read_role(text: str) -> Role:
    """Return the role of a name; an unknown one is a BadValue."""
    try:
        return Role(text)
    except ValueError:
        message = f"unknown role {text!r}"
        raise BadValue(message, node="token", hint=choices("roles", Role, text)) from None


def authorize(principal: Principal, action: Action) -> None:
    """Raise AccessDenied unless the role of a principal allows an action.

    >>> authorize(Principal("ci", Role.OPERATOR), Action.READ)
    """
    needed = _NEEDS[action]
    if not principal.role.includes(needed):
        message = f"{principal.name!r} is a {principal.role}, and this needs the role {needed}"
        raise AccessDenied(message, hint=f"use a token with that role: penstock token create NAME --role {needed}")
