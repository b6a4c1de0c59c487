"""Masks secrets in texts, URLs, options and plans, which it recognizes by their names.

Whatever prints or stores options, addresses or settings goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from penstock.errors import SettingsError
from penstock.quoted_secrets import ESCAPED_QUOTE, NAME, without_quoted

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
# And under these, rows and expressions, which would be others if they were masked.
_DATA = ("rows", "columns", "bad")
_MARK = re.compile(r"[:=/]\*\*\*($|[@&?])")
# A value ends before closing punctuation, so that a quoted address stays quoted.
_PAIR = re.compile(
    rf"""({NAME})=('[^']*'|"[^"]*"|(?:[^&\s"')\]}},;:.]|["')\]}},;:.]++(?!&|\s|$))*+)""",
)
# JSON as a text inside of JSON: a quote is the same mark everywhere, one escaped once more does not end the value.
_ESCAPED_PAIR = re.compile(
    rf"""(?<!\\)({ESCAPED_QUOTE})({NAME})\1(\s*:\s*)\1((?:(?!(?<!\\)\1).)+)(?<!\\)\1""", re.DOTALL
)
# Parts of a connection string, such as Azure's AccountKey; what comes first has no separator before it.
_PART = re.compile(r"""(?<=;)([\w. ]+)=([^;\s"']+)""")
# A name with a dot is an option; one without may be a column.
_OPTION_TUPLE = re.compile(r"""(\((["'])([\w-]+(?:\.[\w-]+)+)\2,\s*)(["'])((?:(?!\4).|(?<=\\)\4)+)\4(?=\))""")
_OPTION_LINE = re.compile(r"^([^\S\n]*)([\w-]+(?:\.[\w-]+)+)(:\s+)\S+(?=[^\S\n]*$)", re.MULTILINE)
_LOGIN_HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization:\s*(?:(?:basic|bearer|digest|token)\s+)?)[^\s\"',]+")
# A word up to its last @: a word without one has no login, however many schemes.
_WITH_AT = re.compile(r"(?<!\S)\S+@")
_USERINFO = re.compile(r"(?<![\w+.-])([\w+.-]++://)([^:@/\s]*)(:)?(?(3)(\S*))@")
_HTTP = re.compile(r"[^A-Za-z]*http")
_BARE_USERINFO = re.compile(r"^(?!\w+://)([^:@\s]*:)\S*(?=@)")
_KEY_BEGIN, _KEY_END = (rf"-----{mark} [A-Z ]*PRIVATE KEY(?: BLOCK)?-----" for mark in ("BEGIN", "END"))
_PEM = re.compile(rf"({_KEY_BEGIN}).*?({_KEY_END}|$)", re.DOTALL)
_PEM_MARK = re.compile(rf"{_KEY_BEGIN}|{_KEY_END.removesuffix('-----')}(?=-----)")
_PEM_END = re.compile(rf".*?({_KEY_END})")
# A line of a key, all but its last one have 60 characters or more; and how many lines the longest keys have.
_KEY_LINE, _LONG_KEY_LINE = (
    re.compile(r"\s*[A-Za-z0-9+/]{1,80}={0,2}\s*"),
    re.compile(r"\s*[A-Za-z0-9+/]{60,80}={0,2}\s*"),
)
_MOST_KEY_LINES = 300
# A text without any of these has nothing to mask, as most have: logs and lists of jobs are long.
_MARKS = ("=", ":", "-----", "('", '("')
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
    if not any(mark in text for mark in _MARKS):
        return text
    hidden = _WITH_AT.sub(lambda found: _USERINFO.sub(_userinfo, found[0]), text)
    hidden = _SECRET_PATH.sub(rf"\1{HIDDEN}", hidden)
    hidden = _WEB_URL.sub(lambda found: _PAIR.sub(_web_pair, found[0]), hidden)
    hidden = _PART.sub(_pair, hidden)
    # A value after `name=` is masked before others, for it may be a part of them.
    hidden = _PAIR.sub(_pair, without_quoted(hidden, is_secret, HIDDEN, direct=True))
    hidden = without_quoted(hidden, is_secret, HIDDEN)
    hidden = _ESCAPED_PAIR.sub(_escaped_pair, hidden)
    hidden = _OPTION_LINE.sub(_option_line, _OPTION_TUPLE.sub(_option_tuple, hidden))
    hidden = _LOGIN_HEADER.sub(rf"\1{HIDDEN}", hidden)
    return _PEM.sub(rf"\1{HIDDEN}\2", hidden)


class LineMask:
    """Masks the lines of a log, one after the other: of a private key every line is masked.

    >>> mask = LineMask()
    >>> [mask(line) for line in ("-----BEGIN PRIVATE KEY-----", "MC4CAQ", "-----END PRIVATE KEY-----", "ok")]
    ['-----BEGIN PRIVATE KEY-----***', '***', '***-----END PRIVATE KEY-----', 'ok']
    """

    def __init__(self) -> None:
        # The first line of a tail may be in the middle of a key.
        self._is_first, self._is_tail, self._left = True, False, 0

    def __call__(self, line: str) -> str:
        """Return the next line."""
        self._is_tail = self._is_key_of_tail(line)
        self._is_first = False
        if self._left and (end := _PEM_END.match(line)):
            line, self._left = HIDDEN + line[end.start(1) :], 0
        elif self._left or self._is_tail:
            self._left = max(0, self._left - 1)
            return HIDDEN
        if (marks := _PEM_MARK.findall(line)) and "BEGIN" in marks[-1]:
            self._left = _MOST_KEY_LINES
        return masked_text(line)

    def _is_key_of_tail(self, line: str) -> bool:
        if self._is_first:
            return _LONG_KEY_LINE.fullmatch(line) is not None
        return self._is_tail and _KEY_LINE.fullmatch(line) is not None


def masked(address: str) -> str:
    """Return an address without its password and the values of secret options, with or without a scheme.

    >>> masked("kafka://ada:secret@a:1"), masked("ada:secret@a:1")
    ('kafka://ada:***@a:1', 'ada:***@a:1')
    """
    return masked_text(_BARE_USERINFO.sub(rf"\1{HIDDEN}", address))


def has_login(url: str) -> bool:
    """Return whether a URL has a user, or a user and a password, which may contain any character but spaces.

    >>> has_login("s3://KEY:se/cret@lake/out"), has_login("s3://lake/a:b@c")
    (True, False)
    """
    return _USERINFO.match(url) is not None


def masked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without the values of those that are secret by their name, and without secrets in the others.

    >>> masked_options({"sasl.username": "ada", "sasl.password": "abc", "ssl": {"key": {"password": 5}}})
    {'sasl.username': 'ada', 'sasl.password': '***', 'ssl': {'key': {'password': '***'}}}
    """
    return {name: _masked_value(str(name), value, in_options=True) for name, value in options.items()}


def masked_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a connector's `spec()` with its secrets masked, however deep: in addresses, and by the names of options.

    Rows and expressions that a spec contains stay as they are: masked, they would be others.

    >>> masked_spec({"kind": "crm", "url": "https://a/?token=abc", "rows": [{"token": "x"}]})
    {'kind': 'crm', 'url': 'https://a/?token=***', 'rows': [{'token': 'x'}]}
    """
    return {name: _masked_value(str(name), value) for name, value in spec.items()}


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
        if name not in _DATA and (found := _masked_in(str(name), value)):
            return found
    return None


def _masked_in(name: str, value: Any) -> str | None:
    if isinstance(value, Mapping):
        return f"{name}: {found}" if (found := _masked_at(value)) else None
    if isinstance(value, (list, tuple)):
        return next((found for part in value if (found := _masked_in(name, part))), None)
    return name if value == HIDDEN or (isinstance(value, str) and _MARK.search(value)) else None


def _masked_value(name: str, value: Any, *, in_options: bool = False) -> Any:
    """Mask a value of this name. Outside of options a number is no secret: `max_tokens` counts."""
    if name in _DATA and not in_options:
        return value
    if value and (in_options or isinstance(value, str)) and is_secret(name):
        return HIDDEN
    if isinstance(value, Mapping):
        inner = in_options or name in _OPTIONS
        return {key: _masked_value(str(key), part, in_options=inner) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked_value(name, part, in_options=in_options) for part in value]
    return _masked_address(value)


def _masked_address(value: Any) -> Any:
    # An expression may look much like an address without a scheme.
    return masked(value) if isinstance(value, str) and re.match(r"[A-Za-z][\w+.-]*://", value) else value


def _userinfo(found: re.Match[str]) -> str:
    scheme, user, colon, password = found.groups()
    if password:
        return f"{scheme}{user}:{HIDDEN}@"
    # Web services accept a token as the user, without a password.
    return f"{scheme}{HIDDEN}@" if _HTTP.match(scheme) else f"{scheme}{user}{colon or ''}@"


def _pair(found: re.Match[str]) -> str:
    return f"{found[1]}={HIDDEN}" if found[2] and is_secret(found[1]) else found[0]


def _web_pair(found: re.Match[str]) -> str:
    secret = found[2] and _WEB_NAMES.fullmatch(unquote(found[1]).lower())
    return f"{found[1]}={HIDDEN}" if secret else found[0]


def _escaped_pair(found: re.Match[str]) -> str:
    quote, name, colon, _ = found.groups()
    return f"{quote}{name}{quote}{colon}{quote}{HIDDEN}{quote}" if is_secret(name) else found[0]


def _option_tuple(found: re.Match[str]) -> str:
    return f"{found[1]}{found[4]}{HIDDEN}{found[4]}" if is_secret(found[3]) else found[0]


def _option_line(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{found[3]}{HIDDEN}" if is_secret(found[2]) else found[0]
