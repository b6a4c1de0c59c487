"""Where the log may listen, and which logins it offers there."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from penstock.errors import SettingsError
from penstock.log.security.credentials import SCRAM


def is_loopback(host: str) -> bool:
    """Say whether only programs of this machine reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    addresses = _addresses(host)
    return bool(addresses) and all(ip_address(each.partition("%")[0]).is_loopback for each in addresses)


def check_listen(host: str, *, authenticated: bool) -> None:
    """Refuse to open the log to other machines without asking who they are."""
    if authenticated or is_loopback(host):
        return
    message = f"listening on {host or 'every address'} without authentication would open the log to everyone"
    hint = (
        "add a user with `penstock log user add NAME` and start with --login, give --client-ca, or listen on 127.0.0.1"
    )
    raise SettingsError(message, hint=hint)


def offered_mechanisms(host: str, *, tls: bool) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener: PLAIN only where nobody on the way can read the password."""
    plain = ("PLAIN",) if tls or is_loopback(host) else ()
    return (*plain, *SCRAM)


def _addresses(host: str) -> list[str]:
    if not host:
        return []
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except OSError:
        message = f"'{host}' is no address of this machine"
        raise SettingsError(message, hint="listen on 127.0.0.1:PORT") from None
