from __future__ import annotations

import pytest

from penstock.control.security.roles import Action, Principal, Role, authorize, read_role
from penstock.errors import AccessDenied, BadValue

ALLOWED = {
    Role.VIEWER: {Action.READ},
    Role.OPERATOR: {Action.READ, Action.CHANGE_JOBS},
    Role.ADMIN: {Action.READ, Action.CHANGE_JOBS, Action.ADMINISTER},
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", Action)
def test_a_role_may_do_what_it_is_for_and_nothing_else(role: Role, action: Action) -> None:
    principal = Principal("ci", role)
    if action in ALLOWED[role]:
        authorize(principal, action)
    else:
        with pytest.raises(AccessDenied, match=f"'ci' is a {role}"):
            authorize(principal, action)


def test_roles_are_ordered_by_their_rights() -> None:
    assert Role.VIEWER.rank < Role.OPERATOR.rank < Role.ADMIN.rank
    assert Role.ADMIN.includes(Role.VIEWER)
    assert not Role.VIEWER.includes(Role.OPERATOR)


def test_an_unknown_role_is_an_error_that_lists_the_roles() -> None:
    assert read_role("admin") is Role.ADMIN
    with pytest.raises(BadValue, match="viewer, operator, admin"):
        read_role("admn")
