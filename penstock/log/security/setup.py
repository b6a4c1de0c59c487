"""The security of one broker, from its data folder and start options; where it may listen, and its SASL mechanisms."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from penstock.errors import SettingsError
from penstock.log.security.acls import ANONYMOUS, AclFilter, Authorizer
from penstock.log.security.authentication import Authentication
from penstock.log.security.quotas import Quotas
from penstock.log.security.users import SCRAM, Users


@dataclass(frozen=True)
class Security:
    """Users, ACLs and quotas. Without `access` nothing is authorized, without `logins` clients do not authenticate."""

    users: Users
    quotas: Quotas
    access: Authorizer | None = None
    mechanisms: tuple[str, ...] = ()
    logins: bool = False

    def authentication(self, certificate: str | None = None) -> Authentication | None:
        """Return the authentication of a new connection, or None if none is required.

        `certificate` is the principal of the client's certificate, see `tls.principal_of`.
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
    """Load the security of a data folder for a listener; SettingsError if the log would be open to everyone."""
    authenticated = login or client_certificates
    check_listen(host, authenticated=authenticated)
    users = Users(data)
    if login:
        _check_users(users, data)
    access = Authorizer(data, users, super_users) if authenticated or acls else None
    if access is not None and not authenticated:
        _check_rights(access)
    mechanisms = offered_mechanisms(host, tls=tls) if login else ()
    return Security(users, Quotas(data, clock), access, mechanisms, authenticated)


def _check_rights(access: Authorizer) -> None:
    if not access.find(AclFilter()) and not access.is_super(ANONYMOUS):
        message = f"--acls without authentication: all clients are {ANONYMOUS}, and no ACL allows them anything"
        hint = f"add ACLs while it runs with --super-user {ANONYMOUS}, then start it without that flag"
        raise SettingsError(message, hint=hint)


def _check_users(users: Users, data: Path) -> None:
    if len(users) == 0:
        message = f"--login is set, and {data} has no users"
        raise SettingsError(message, hint=f"add the first one: penstock log user add NAME --super --data {data}")


def is_loopback(host: str) -> bool:
    """Return whether an address can only be reached from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    addresses = _addresses(host)
    return bool(addresses) and all(ip_address(each.partition("%")[0]).is_loopback for each in addresses)


def check_listen(host: str, *, authenticated: bool) -> None:
    """Refuse to listen for other machines without authentication."""
    if authenticated or is_loopback(host):
        return
    message = f"listening on {host or 'every address'} without authentication would open the log to everyone"
    hint = (
        "add a user with `penstock log user add NAME` and start with --login, give --client-ca, or listen on 127.0.0.1"
    )
    raise SettingsError(message, hint=hint)


def offered_mechanisms(host: str, *, tls: bool) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener: PLAIN only with TLS or on the loopback interface."""
    plain = ("PLAIN",) if tls or is_loopback(host) else ()
    return (*plain, *SCRAM)


def _addresses(host: str) -> list[str]:
    if not host:
        return []
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except OSError:
        message = f"'{host}' is not an address of this machine"
        raise SettingsError(message, hint="listen on 127.0.0.1:PORT") from None
