"""Masks secrets in texts, URLs, options and plans, which it recognizes by their names.

Whatever prints or stores options, addresses or settings goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from penstock.errors import SettingsError

HIDDEN = "***"
# Names with one of these words: options of librdkafka, libpq, obstore, Spark, Kafka's Java client; HTTP headers.
_WORDS = re.compile(
    r"passw|pwd|passphrase|secret|token(?!i[sz])|credential|jaas|cookie|authorization|oauthbearer_?config"
    r"|private_?key|key_pem|(api|account|access|sas|encryption|customer|scram_(client|server)|master|subscription"
    r"|shared|keystore)_?key|service_account_key|(^|_)(sas|sig|pat)($|_)|(^|_)(x_amz_|x_goog_)?signature$(?<!skip_signature)"
)
# Endings of such names that only say where a secret is, of which kind, or whether there is one.
_ABOUT = re.compile(
    r"_(file|location|path|dir|url|uri|endpoint|id|type|class|provider|mechanism|enabled?|name|ms|seconds)$"
)
# Short names that are secrets in a web address and harmless elsewhere: a Kafka connection's `key` names a file.
_WEB_NAMES = re.compile(r"key|code|auth|sig|pass|pw")
_WEB_URL = re.compile(r"https?://\S+")
# Under these names a spec contains options of a client, not rows.
_OPTIONS = ("options", "headers", "config", "properties", "login")
_MARK = re.compile(r"[:=/]\*\*\*($|[@&?])")
_NAME = r"[\w.%+-]+"
# A value ends before closing punctuation, so that a quoted address stays quoted.
_PAIR = re.compile(rf"""({_NAME})=('[^']*'|"[^"]*"|[^&\s]*?(?=["')\]}},;:.]*(?:[&\s]|$)))""")
_QUOTED_PAIR = re.compile(rf"""(["'])({_NAME})\1(\s*:\s*)(b?)(["'])((?:\\.|(?!\5).)*)\5""", re.DOTALL)
_USERINFO = re.compile(r"([A-Za-z][\w+.-]*://)([^:@/\s]*)(:)?(?(3)(\S*))@")
_BARE_USERINFO = re.compile(r"^(?!\w+://)([^:@\s]*:)\S*(?=@)")
_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
# Services whose URLs are secrets: anyone who knows the path can post.
_SECRET_PATH = re.compile(
    r"(https?://(?:hooks\.slack\.com|(?:\w+\.)?discord(?:app)?\.com|[\w.-]+\.webhook\.office\.com|api\.telegram\.org)/)"
    r"""[^\s"']+"""
)


def is_secret(name: str) -> bool:
    """Return whether a value of this name is a secret.

    >>> [name for name in ("sasl.password", "aws_secret_access_key", "ssl.key.location") if is_secret(name)]
    ['sasl.password', 'aws_secret_access_key']
    """
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", unquote(name)).lower())
    return _WORDS.search(plain) is not None and _ABOUT.search(plain) is None


def is_secret_header(name: str) -> bool:
    """Return whether an HTTP header of this name is a secret."""
    return is_secret(name) or any(part in name.lower() for part in ("auth", "key"))


def masked_text(text: str) -> str:
    """Return a text without the passwords of the URLs in it, and without the values of secret options.

    >>> masked_text("s3://KEY:topsecret@lake/out and sasl.password=abc")
    's3://KEY:***@lake/out and sasl.password=***'
    """
    hidden = _SECRET_PATH.sub(rf"\1{HIDDEN}", _USERINFO.sub(_userinfo, text))
    hidden = _WEB_URL.sub(lambda found: _PAIR.sub(_web_pair, found[0]), hidden)
    hidden = _QUOTED_PAIR.sub(_quoted_pair, _PAIR.sub(_pair, hidden))
    return _PEM.sub(rf"\1{HIDDEN}\2", hidden)


def masked(address: str) -> str:
    """Return an address without its password and the values of secret options, with or without a scheme.

    >>> masked("kafka://ada:secret@a:1"), masked("ada:secret@a:1")
    ('kafka://ada:***@a:1', 'ada:***@a:1')
    """
    return masked_text(_BARE_USERINFO.sub(rf"\1{HIDDEN}", address))


def masked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without the values of those that are secret by their name, and without secrets in the others.

    >>> masked_options({"sasl.username": "ada", "sasl.password": "abc"})
    {'sasl.username': 'ada', 'sasl.password': '***'}
    """
    return {name: HIDDEN if value and is_secret(name) else _masked_address(value) for name, value in options.items()}


def masked_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a connector's `spec()` with its secrets masked: in addresses, and by the names of options.

    Rows and expressions that a spec contains stay as they are: masked, they would be others.

    >>> masked_spec({"kind": "crm", "url": "https://a/?token=abc", "rows": [{"token": "x"}]})
    {'kind': 'crm', 'url': 'https://a/?token=***', 'rows': [{'token': 'x'}]}
    """
    return {name: _masked_option(name, value) for name, value in spec.items()}


def without(text: str, secrets: Iterable[str | None]) -> str:
    """Return a message of a client library without secrets: those by their form, and the given ones."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return masked_text(text)


def reached_by(connection: str) -> str:
    """Return a description of a connection: a masked address, or a name in the settings.

    >>> reached_by("postgresql://ada:secret@a/shop"), reached_by("crm")
    ('at postgresql://ada:***@a/shop', "of connection 'crm'")
    """
    return f"at {masked(connection)}" if ":" in connection else f"of connection '{connection}'"


def refuse_masked(spec: Mapping[str, Any], what: str) -> None:
    """Raise SettingsError for a `spec()` from which a secret was left out."""
    found = _masked_at(spec)
    if found:
        name = spec.get("name") or spec.get("kind")
        message = f"{what} '{name}': secrets are not kept in plans, and its {found} had one"
        hint = (
            'build the plan with a named connection, connection="NAME", and give its address where the job runs:\n'
            "  in penstock.toml under [settings.connections], or in PENSTOCK_CONNECTIONS"
        )
        raise SettingsError(message, hint=hint)


def _masked_at(spec: Mapping[str, Any]) -> str | None:
    for name, value in spec.items():
        if name in _OPTIONS and isinstance(value, Mapping) and (found := _masked_at(value)):
            return f"{name}: {found}"
        if value == HIDDEN or (isinstance(value, str) and _MARK.search(value)):
            return str(name)
    return None


def _masked_option(name: str, value: Any) -> Any:
    if name in _OPTIONS and isinstance(value, Mapping):
        return masked_options(value)
    return HIDDEN if value and is_secret(name) and isinstance(value, str) else _masked_address(value)


def _masked_address(value: Any) -> Any:
    # An expression may look much like an address without a scheme.
    return masked(value) if isinstance(value, str) and re.match(r"[A-Za-z][\w+.-]*://", value) else value


def _userinfo(found: re.Match[str]) -> str:
    scheme, user, colon, password = found.groups()
    if password:
        return f"{scheme}{user}:{HIDDEN}@"
    # Web services accept a token as the user, without a password.
    return f"{scheme}{HIDDEN}@" if scheme.startswith("http") else f"{scheme}{user}{colon or ''}@"


def _pair(found: re.Match[str]) -> str:
    return f"{found[1]}={HIDDEN}" if found[2] and is_secret(found[1]) else found[0]


def _web_pair(found: re.Match[str]) -> str:
    secret = found[2] and _WEB_NAMES.fullmatch(unquote(found[1]).lower())
    return f"{found[1]}={HIDDEN}" if secret else found[0]


def _quoted_pair(found: re.Match[str]) -> str:
    quote, name, colon, _, around, value = found.groups()
    return f"{quote}{name}{quote}{colon}{around}{HIDDEN}{around}" if value and is_secret(name) else found[0]
