"""What guards one running log, put together from its data folder and the options of its start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import SettingsError
from penstock.log.security.access import Access
from penstock.log.security.acls import ANONYMOUS, AclFilter
from penstock.log.security.authentication import Authentication
from penstock.log.security.listen import check_listen, offered_mechanisms
from penstock.log.security.quotas import Quotas
from penstock.log.security.users import Users


@dataclass(frozen=True)
class Security:
    """Users, rights and quotas. Without `access` everyone may do everything; without `logins` nobody has to log in."""

    users: Users
    quotas: Quotas
    access: Access | None = None
    mechanisms: tuple[str, ...] = ()
    logins: bool = False

    def authentication(self, certificate: str | None = None) -> Authentication | None:
        """Return the login of a new connection, or None where none is asked for.

        `certificate` is the principal of the certificate that the client showed, see `tls.principal_of`.
        """
        return Authentication(self.users, self.mechanisms, certificate=certificate) if self.logins else None


def open_security(
    data: Path,
    host: str = "127.0.0.1",
    *,
    login: bool = False,
    tls: bool = False,
    client_certificates: bool = False,
    super_users: Iterable[str] = (),
    acls: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Security:
    """Read the security of a data folder for a listener; SettingsError where it would be open to everyone."""
    authenticated = login or client_certificates
    check_listen(host, authenticated=authenticated)
    users = Users(data)
    if login:
        _check_users(users, data)
    access = Access(data, users, super_users) if authenticated or acls else None
    if access is not None and not authenticated:
        _check_rights(access)
    mechanisms = offered_mechanisms(host, tls=tls) if login else ()
    return Security(users, Quotas(data, clock), access, mechanisms, authenticated)


def _check_rights(access: Access) -> None:
    if not access.find(AclFilter()) and not access.is_super(ANONYMOUS):
        message = (
            f"--acls without a login: all clients are {ANONYMOUS}, no ACL allows them anything, so nobody could add one"
        )
        hint = f"add ACLs while it runs with --super-user {ANONYMOUS}, then start it without that flag"
        raise SettingsError(message, hint=hint)


def _check_users(users: Users, data: Path) -> None:
    if len(users) == 0:
        message = f"logins are asked for, and {data} has no users"
        raise SettingsError(message, hint=f"add the first one: penstock log user add NAME --super --data {data}")
