"""No secret leaves a connection: every secret option of the client libraries, through every way out."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import quote

import obstore
import pytest
from confluent_kafka import KafkaError
from psycopg import pq

import penstock as ps
from penstock.connectors.catalog import sink_from_spec
from penstock.connectors.files.sink import FileSink
from penstock.connectors.tables.sink import TableSink
from penstock.connectors.topics.client_errors import resolve, translated
from penstock.connectors.topics.connection import Connection
from penstock.connectors.topics.sink import TopicSink
from penstock.connectors.topics.source import TopicSource
from penstock.contracts import Sink
from penstock.errors import PenstockError, SettingsError
from penstock.masking import LineMask, is_secret, masked, masked_options, masked_spec, masked_text, without
from penstock.schema import Schema
from penstock.settings import Settings
from penstock.storage.folders import folder

SECRET = "Hunter-2"
NUMBERS = Schema("n bigint")
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
# All of librdkafka's CONFIGURATION.md that proves who one is, as of 2.16.
LIBRDKAFKA = [
    "sasl.password",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
]
LIBRDKAFKA_OPEN = [
    *("sasl.username", "sasl.mechanism", "sasl.kerberos.keytab", "sasl.oauthbearer.client.id"),
    *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"),
    *("sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.jwt.template.file"),
    *("sasl.oauthbearer.grant.type", "sasl.oauthbearer.method", "enable.sasl.oauthbearer.unsecure.jwt"),
    *("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.location", "ssl.keystore.location", "ssl.ca.location"),
]
LIBPQ = {"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
OBSTORE = {
    "_aws.pyi": {"secret_access_key", "session_token", "sse_customer_key_base64", "token"},
    "_azure.pyi": {
        *("account_key", "client_secret", "sas_key", "token", "encryption_key", "fabric_session_token"),
        *("access_key", "sas_token"),
    },
    # The last one is a path; that it is hidden harms nobody.
    "_gcs.pyi": {"service_account_key", "bearer_token", "token", "application_credentials"},
}
ELSEWHERE = [
    *("kafka.sasl.jaas.config", "kafka.ssl.truststore.password", "kafka.ssl.keystore.key", "Authorization", "Cookie"),
    *("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token", "spark.authenticate.secret"),
    *("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "apiKey", "clientSecret", "X-Amz-Signature"),
]


def test_every_secret_option_of_librdkafka_is_known_by_its_name() -> None:
    assert [name for name in LIBRDKAFKA + LIBRDKAFKA_OPEN if is_secret(name)] == LIBRDKAFKA


def test_every_secret_option_of_libpq_is_known_by_its_name() -> None:
    options = {option.keyword.decode(): option.dispchar.decode() for option in pq.Conninfo.get_defaults()}
    assert {name for name in options if is_secret(name)} == LIBPQ & options.keys()
    assert {name for name, shown in options.items() if shown == "*"} <= LIBPQ


@pytest.mark.parametrize("stub", OBSTORE)
def test_every_secret_option_of_obstore_is_known_by_its_name(stub: str) -> None:
    text = (Path(obstore.__file__).parent / "_store" / stub).read_text()
    names = set(re.findall(r"^    (\w+): ", text, re.MULTILINE))
    prefixes = ("", {"_aws.pyi": "aws_", "_azure.pyi": "azure_storage_", "_gcs.pyi": "google_"}[stub])
    for prefix in prefixes:
        assert {name for name in names if is_secret(prefix + name)} == OBSTORE[stub]


def test_secrets_of_other_clients_are_known_by_their_names() -> None:
    assert [name for name in ELSEWHERE if not is_secret(name)] == []
    harmless = ["key", "keys", "tokenizer", "author", "path", "partition_by", "guarantee", "secretId", "token_type"]
    assert [name for name in harmless if is_secret(name)] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:Hunter-2@lake/out", "s3://KEY:***@lake/out"),
        ("s3://KEY:Hunt/er@-:2@lake//out", "s3://KEY:***@lake//out"),
        ("postgresql://ada@db/shop?sslpassword=Hunter-2&sslmode=require", "postgresql://ada@db/shop?sslpassword=***&sslmode=require"),
        ("kafka://a:1?sasl%2Epassword=Hunter-2", "kafka://a:1?sasl%2Epassword=***"),
        ("https://Hunter-2@api.example/in", "https://***@api.example/in"),
        ("https://sk_Hunter-2:@api.example/in", "https://***@api.example/in"),
        ("https://api.example/in?key=Hunter-2&x=1", "https://api.example/in?key=***&x=1"),
        ("https://hooks.slack.com/services/T0/B0/Hunter-2", "https://hooks.slack.com/***"),
        ("GET 'https://lake.example/x?sv=1&sig=Hunter-2': 403", "GET 'https://lake.example/x?sv=1&sig=***': 403"),
        ("{'sasl.password': 'Hunter-2', 'n': '1'}", "{'sasl.password': '***', 'n': '1'}"),
        ('{"client_secret": "Hunt\\"er-2"}', '{"client_secret": "***"}'),
        ('required username="ada" password="Hunter-2";', 'required username="ada" password=***;'),
        (f"{BEGIN}\nHunter-2\n{END}", f"{BEGIN}***{END}"),
        ('password = "Hunt er-2"', 'password = "***"'),
        ('"spark.x.secret.key" = "Hunter-2"', '"spark.x.secret.key" = "***"'),
        ("AccountName=a;AccountKey=Hunter-2==;EndpointSuffix=core", "AccountName=a;AccountKey=***;EndpointSuffix=core"),
        ("[('sasl.password', 'Hunter-2')]", "[('sasl.password', '***')]"),
        ("a\n  sasl.password: Hunter-2\nb", "a\n  sasl.password: ***\nb"),
        ("authorization: Bearer Hunter-2", "authorization: Bearer ***"),
        (r'"{\"password\": \"Hunt\\\"er-2\", \"n\": \"1\"}"', r'"{\"password\": \"***\", \"n\": \"1\"}"'),
        ("password='it''s Hunter-2' and n=1", "password=*** and n=1"),
        (r"password='it\'s Hunter-2', n=1", "password=***, n=1"),
        ('password="it""s Hunter-2"; n=1', "password=***; n=1"),
        (r'password="it\"s Hunter-2")', "password=***)"),
        ("password='''it is Hunter-2''' n", "password=*** n"),
        ("(password = 'it''s Hunter-2', n = 'y')", "(password = '***', n = 'y')"),
        ("{'password': 'it''s Hunter-2'}", "{'password': '***'}"),
        # What is unclear, such as a backslash before the last quote, is masked.
        (r"password='C:\' token='it is Hunter-2'", "password=***"),
        ("password='it''s Hunter-2", "password=***"),
        ("note='it''s' password='Hunt er-2'", "note='it''s' password=***"),
        ("password='' n='it is'", "password=*** n='it is'"),
        ("password='Hunter-2 is", "password=*** is"),
        ("('password': 'sasl.password='Hunter-2'", "('password': 'sasl.password=***"),
        # In quotes in quotes: of SQL, of JSON, of bytes, of a shell.
        ("dblink('a password=''Hunter-2'' n')", "dblink('a password=*** n')"),
        ("EXECUTE 'ALTER x password = ''Hunter-2'' n'", "EXECUTE 'ALTER x password = '***' n'"),
        (r"f(password='@\'')Hunter-2', n=1)", "f(password=***, n=1)"),
        (r'"f(password = \"Hunter-2\", b=1)"', r'"f(password = \"***\", b=1)"'),
        (r'"f(password=\"it is Hunter-2\", b=1)"', r'"f(password=***, b=1)"'),
        ("f(password=b'it is Hunter-2', n=b'y')", "f(password=***, n=b'y')"),
        ("--password='it'\"'\"'s Hunter-2' --n", "--password=*** --n"),
        ("a.token = b.token AND x = 'token'", "a.token = b.token AND x = 'token'"),
        ("key=('token', 'symbol')", "key=('token', 'symbol')"),
        ("aggregate 'token': unknown column 'x'", "aggregate 'token': unknown column 'x'"),
        ("password: string", "password: string"),
        ("jobs.token: unknown column", "jobs.token: unknown column"),
        ("kafka://a:1?ca=ca.pem&key=client.key", "kafka://a:1?ca=ca.pem&key=client.key"),
        ("/in/a.csv:12: price='x@y'", "/in/a.csv:12: price='x@y'"),
        ("s3://lake/a:b@c", "s3://lake/a:b@c"),
    ],
)  # fmt: skip
def test_a_text_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked_text(shown) == shown


# Repeated on a long line, some of these took time that grows with the square of its length, or worse.
PIECES = [
    *("a", "a=", "a =", " ", "\n", "=", ":", "@", ";", "'", '"', "\\", "a.", "a.b", "a.b: ", "a.b:\n", "a=;;;", "a=]'"),
    *("http", "https://", "a://", "a://b:", "a://b:c@d ", "password ", "password=", "password='", "password = 'a"),
    *("'a': '\\x", "('a.b', '\\x", "'a': '", "'a'=", r"\"a\": \"", r"\"a", "password='\\'x ", "'password': '\\'x"),
    *("password='''", "password=''a", "password=''';", "; a", ";a b", ";a=", "('a.b", "-----BEGIN PRIVATE KEY-----"),
    *("-----BEGIN A ", "-----END PRIVATE KEY-----", "authorization: ", "proxy-", "http://a.webhook.office.com"),
]
# Such a line takes a tenth of this; where time grows with the square, ten times as much.
LONG, MOST_SECONDS = 50_000, 4


@pytest.mark.parametrize(("first", "last"), [("", ""), ("a=", ";x"), (":", "= "), ("", ": x y"), ("('", "='")])
def test_a_long_line_is_masked_in_time_that_grows_with_its_length(first: str, last: str) -> None:
    for piece in PIECES:
        assert seconds(first + piece * (LONG // len(piece)) + last) < MOST_SECONDS, piece


def test_quotes_with_ever_more_backslashes_are_masked_in_such_time_too() -> None:
    marks = [backslashes * "\\" + quote for backslashes in range(1, 150) for quote in "'\""]
    line = "".join(f" {mark}a{mark}:{mark} a={mark}x password={mark}" for mark in marks)
    assert seconds(line + "x" * LONG) < MOST_SECONDS


def test_many_keys_before_a_long_rest_are_masked_in_such_time_too() -> None:
    assert seconds(BEGIN * (LONG // 8) + END + "x" * LONG * 4) < MOST_SECONDS


def seconds(line: str) -> float:
    """The time of the processor that masking takes."""
    started = time.process_time()
    LineMask()(line)
    masked(line)
    return time.process_time() - started


BODY = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3S", "fQ=="]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["a", BEGIN, *BODY, END, "b"], ["a", BEGIN + "***", "***", "***", "***", "***" + END, "b"]),
        (
            [f"key: {BEGIN}", "Proc-Type: 4", "", f"{BODY[0]} {END} b"],
            [f"key: {BEGIN}***", "***", "***", f"***{END} b"],
        ),
        ([f"{BEGIN}x{END}", BODY[0]], [f"{BEGIN}***{END}", BODY[0]]),
        ([f"{BEGIN}x{END}{BEGIN}", BODY[2]], [f"{BEGIN}***{END}{BEGIN}***", "***"]),
        ([*BODY, END, BODY[0], "b"], ["***", "***", "***", END, BODY[0], "b"]),
        (["word", "MIIE"], ["word", "MIIE"]),
    ],
)
def test_the_lines_of_a_private_key_in_a_log_are_masked_one_by_one(lines: list[str], shown: list[str]) -> None:
    assert [*map(LineMask(), lines)] == shown


def test_a_private_key_without_an_end_does_not_mask_the_rest_of_a_log() -> None:
    assert [*map(LineMask(), [BEGIN, *["line"] * 1000])][-1] == "line"


def test_what_a_client_says_is_shown_without_what_it_was_given() -> None:
    assert without(f"cannot use {SECRET}, really", [SECRET, "", None]) == "cannot use ***, really"


def test_rows_and_expressions_in_a_spec_stay_as_they_are() -> None:
    spec = {"kind": "items", "rows": [{"token": "x"}], "key": "concat('token=', id)", "columns": {"password": "uuid"}}
    assert masked_spec(spec) == spec
    assert masked_spec({"options": {"password": SECRET}, "token": SECRET}) == {
        "options": {"password": "***"},
        "token": "***",
    }
    assert masked_options({"password": "", "x": 1}) == {"password": "", "x": 1}
    assert masked_spec({"max_tokens": 5, "to": {"max_tokens": 5}}) == {"max_tokens": 5, "to": {"max_tokens": 5}}


NESTED = {
    "auth": {"user": "ada", "password": SECRET},
    "servers": [f"kafka://ada:{SECRET}@a:1"],
    "to": [{"tokens": [SECRET], "options": {"pin": {"api_key": 5}}}],
}


class Crm(ps.Sink):
    """A sink of a user's own."""

    guarantee = "at_least_once"
    name = "crm"

    def spec(self) -> dict[str, object]:
        return {"kind": "crm", "name": "crm", **NESTED}


@pytest.mark.parametrize(("part", "where"), [("auth", "auth: password"), ("servers", "servers"), ("to", "to: tokens")])
def test_secrets_deep_in_a_spec_are_masked_and_such_a_plan_is_refused(part: str, where: str) -> None:
    shown = masked_spec({"name": "crm", part: NESTED[part]})
    assert SECRET not in repr(shown)
    with pytest.raises(SettingsError, match=f"'crm': secrets are not kept in plans, and its {where} had one"):
        sink_from_spec(shown)
    assert masked_spec(NESTED)["to"][0]["options"] == {"pin": {"api_key": "***"}}
    assert SECRET not in ps.Pipeline("p", ps.from_items([{"n": 1}], "n bigint").to(Crm())).to_json()


def ways_out(sink: Sink) -> list[str]:
    """All texts of a pipeline that ends in a sink."""
    pipeline = ps.Pipeline("p", ps.from_items([{"n": 1}], "n bigint").to(sink))
    drawn = [pipeline.explain(), pipeline.to_json(), pipeline.to_dot(), pipeline.to_mermaid()]
    return [*drawn, repr(pipeline), repr(sink), repr(sink.spec()), sink.name, sink.describe_target() or ""]


def kafka_error(text: str) -> KafkaError:
    return KafkaError(KafkaError._INVALID_ARG, f"cannot use {text}")


@pytest.mark.parametrize("option", LIBRDKAFKA)
def test_a_secret_option_of_a_kafka_connection_shows_nowhere(option: str, caplog: pytest.LogCaptureFixture) -> None:
    url = f"kafka://127.0.0.1:1?tls=true&{option}={SECRET}"
    settings = Settings(log=url, connections={"x": url}, spark={option: SECRET})
    connection = resolve("x", settings)
    assert connection.config()[option] == SECRET
    sink, source = TopicSink("t", connection=url), TopicSource("t", NUMBERS, connection=url)
    shown = [*ways_out(sink), repr(source.spec()), repr(connection), str(connection), repr(settings)]
    for connector in (sink, source):
        connector.configure("job", settings)
        with pytest.raises(PenstockError) as raised:
            connector.check()
        shown += [str(raised.value), repr(raised.value)]
    shown += [str(translated(kafka_error(SECRET), "t", connection)), caplog.text]
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize("option", sorted(LIBPQ))
def test_a_secret_option_of_a_postgres_connection_shows_nowhere(option: str) -> None:
    url = f"postgresql://ada:{SECRET}@127.0.0.1:1/shop?{option}={quote(SECRET)}"
    sink = TableSink("t", url)
    shown = ways_out(sink)
    sink.configure("job", Settings())
    with pytest.raises(PenstockError) as raised:
        sink.check()
    shown.append(str(raised.value))
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize(
    "secret", ["wJal/rXUt", "wJal+rXUt", "wJal@rXUt", "wJal:rXUt", "wJal%2FrXUt", "wJal?rXUt", "wJ@al/rXUt"]
)
def test_a_password_of_any_characters_is_not_shown_by_clients_that_cannot_read_it(secret: str) -> None:
    def check(sink: Sink) -> None:
        sink.configure("job", Settings())
        sink.check()

    for made in (
        lambda: check(TableSink("t", f"postgresql://ada:{secret}@127.0.0.1:1/shop")),
        lambda: check(TopicSink("t", connection=f"kafka://ada:{secret}@127.0.0.1:1")),
        lambda: ps.webhook(f"ftp://ada:{secret}@127.0.0.1:1/x"),
    ):
        with pytest.raises(PenstockError) as raised:
            made()
        assert not shown_of(secret, str(raised.value))


# Characters that secrets of AWS have, and such as divide a URL.
SECRETS = [SECRET, "wJal/rXUt", "wJal//rXUt", "wJal+rXUt", "wJal@rXUt", "wJal:rXUt", "wJal%2FrXUt", "/wJal/../rXUt/"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "s3a"])
def test_a_login_in_the_address_of_a_store_is_refused_without_showing_it(scheme: str, secret: str) -> None:
    for path in ("/out", "//out", "", "/a@b"):
        url = f"{scheme}://KEY:{secret}@lake{path}"
        with pytest.raises(SettingsError, match=r"contains a login(.|\n)*variables (AWS|GOOGLE|AZURE)_") as raised:
            folder(url)
        assert not shown_of(secret, str(raised.value))
        if scheme != "s3a":
            for make in (lambda url=url: ps.files(url), lambda url=url: FileSink("out", base=url)):
                with pytest.raises(SettingsError, match="contains a login") as raised:
                    make()
                assert not shown_of(secret, str(raised.value))
    settings = Settings(checkpoints=url, files=url, savepoints=url, registry=f"https://a:{secret}@b")
    assert not shown_of(secret, repr(settings))


def shown_of(secret: str, text: str) -> list[str]:
    """The parts of a secret that a text shows."""
    return [part for part in (secret, *re.findall(r"wJal|rXUt|Hunter", secret)) if part in text]


@pytest.mark.parametrize("url", ["s3://lake/a:b@c", "s3://lake/token=5/key=7", "az://lake/a@b"])
def test_a_path_in_a_store_may_look_like_a_login_or_an_option(url: str) -> None:
    assert str(folder(url)) == url
    assert ps.files(url)


def test_a_webhook_shows_no_secret_of_its_address_or_headers() -> None:
    sinks = [
        ps.webhook(f"https://ada:{SECRET}@hooks.example/in?token={SECRET}", headers={"X-Api-Key": SECRET}),
        ps.webhook(f"https://hooks.slack.com/services/T0/B0/{SECRET}"),
    ]
    assert not [text for sink in sinks for text in ways_out(sink) if SECRET in text]


@pytest.mark.parametrize(
    "sink",
    [
        ps.topic("t", connection=f"kafka://a:1?sasl.oauthbearer.client.secret={SECRET}"),
        ps.topic("t", connection=f"ada:{SECRET}@a:1"),
        ps.table("t", connection=f"postgresql://ada:{SECRET}@h/d"),
        ps.webhook("https://h/in", headers={"Authorization": SECRET}),
        ps.webhook(f"https://{SECRET}@h/in"),
        ps.webhook(f"https://hooks.slack.com/services/T0/B0/{SECRET}"),
    ],
    ids=lambda sink: type(sink).__name__,
)
def test_a_plan_without_its_secrets_is_refused_with_the_way_to_keep_them_out(sink: Sink) -> None:
    text = ps.Pipeline("p", ps.from_items([{"n": 1}], "n bigint").to(sink)).to_json()
    with pytest.raises(SettingsError, match=r"secrets are not kept in plans(.|\n)*named connection"):
        ps.Pipeline.from_json(text)
    with pytest.raises(SettingsError, match="secrets are not kept"):
        sink_from_spec(sink.spec() or {})


def test_a_plan_with_a_named_connection_is_rebuilt() -> None:
    pipeline = ps.Pipeline("p", ps.from_items([{"n": 1}], "n bigint").to(ps.topic("t", connection="prod")))
    assert ps.Pipeline.from_json(pipeline.to_json()).to_json() == pipeline.to_json()


def test_two_sinks_that_differ_in_a_secret_are_two() -> None:
    first, second = (ps.webhook(f"https://h/in?token={token}") for token in ("a", "b"))
    assert first.spec() == second.spec()
    assert first != second
    assert first == ps.webhook("https://h/in?token=a")


def test_an_option_that_librdkafka_refuses_is_an_error_of_ours_without_the_secret() -> None:
    sink = TopicSink("t", connection=f"127.0.0.1:1?security.protocol=ssl&ssl.key.pem={SECRET}")
    sink.configure("job", Settings())
    with pytest.raises(PenstockError, match=r"ssl\.key\.pem") as raised:
        sink.open(NUMBERS, ())
    assert SECRET not in str(raised.value)


def test_an_address_without_a_scheme_is_shown_without_its_password() -> None:
    assert masked(f"ada:{SECRET}@a:1") == "ada:***@a:1"
    assert SECRET not in repr(Connection.parse(f"ada:{SECRET}@a:1"))
