"""TLS for the server: its certificate, and the certificates of clients."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import MissingInput, SettingsError

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def server_context(
    certificate: Path, key: Path, client_ca: Path | None = None, *, require_client: bool = True
) -> ssl.SSLContext:
    """Return the TLS context of a server, TLS 1.2 or newer.

    With `client_ca`, clients present a certificate of this authority; unless required, they may use SASL instead.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, certificate, key)
    if client_ca:
        _load_authority(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_OPTIONAL
    return context


def principal_of(peer_certificate: Mapping[str, Any] | None) -> str | None:
    """Return the principal of a client's certificate as Kafka names it, or None.

    >>> principal_of({"subject": ((("organizationName", "Ops"),), (("commonName", "alice"),))})
    'User:CN=alice,O=Ops'
    """
    subject = (peer_certificate or {}).get("subject", ())
    parts = ["+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in subject]
    return f"User:{','.join(reversed(parts))}" if parts else None


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value)
    return f"\\{escaped}" if escaped.startswith(("#", " ")) else escaped


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _readable(certificate, "certificate")
    _readable(key, "key")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        message = f"the key {key} has a password"
        raise SettingsError(message, hint=f"decrypt it: openssl pkey -in {key} -out plain.key") from None
    except ssl.SSLError as error:
        message = f"the certificate {certificate} and the key {key} cannot be used: {error.reason or 'not PEM'}"
        raise SettingsError(message, hint="both must be PEM files, and the key the certificate's own") from None


def _load_authority(context: ssl.SSLContext, path: Path) -> None:
    _readable(path, "client CA")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        message = f"the client CA {path} cannot be used: {error.reason or 'not PEM'}"
        raise SettingsError(message, hint="it must be a PEM file of certificates") from None


def _readable(path: Path, what: str) -> None:
    if not path.is_file():
        message = f"the {what} {path} does not exist"
        raise MissingInput(message, hint=f"give the path of the {what} as a PEM file")
    try:
        path.open("rb").close()
    except PermissionError:
        message = f"the {what} {path}: permission denied"
        raise SettingsError(message, hint="run as a user who can read it") from None


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal and wait.
    raise _Encrypted
