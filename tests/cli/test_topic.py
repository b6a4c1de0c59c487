"""`penstock topic`, on Penstock's own log and on Apache Kafka."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.peers.broker import free_port
from penstock.cli.kafka_client.access import read_access
from penstock.errors import UnknownSetting

Penstock = Callable[..., Any]
ours_alone = pytest.mark.parametrize("broker", ["penstock"], indirect=True)


def described(log: Penstock, topic: str) -> dict[str, Any]:
    return dict(json.loads(log("topic", "describe", topic, "--json").out))


def described_when(log: Penstock, topic: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Kafka tells its clients of a change a moment after it made it."""
    deadline = time.monotonic() + 30
    while not holds(found := described(log, topic)):
        assert time.monotonic() < deadline, found
    return found


def test_a_new_topic_is_listed_and_described(log: Penstock, topic: str) -> None:
    assert f"{topic}  " in log("topic", "list").out
    assert {"topic": topic, "partitions": 2} in json.loads(log("topic", "list", "--json").out)
    found = described(log, topic)
    assert [(each["partition"], each["beginning"], each["end"]) for each in found["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert log("topic", "describe", topic).out.startswith(f"topic {topic}: 2 partitions\npartition  beginning  end")


def test_the_brokers_own_topics_are_shown_on_request(log: Penstock, topic: str) -> None:
    log("consume", topic, "--group", "makes-the-offsets-topic")
    assert "__consumer_offsets" not in log("topic", "list").out
    assert "__consumer_offsets" in log("topic", "list", "--internal").out


def test_settings_are_made_altered_and_unset(log: Penstock, topic: str) -> None:
    name = f"{topic}-set"
    assert log("topic", "create", name, "--config", "retention.ms=5000", "--config", "cleanup.policy=compact").code == 0
    assert described(log, name)["config"] == {"cleanup.policy": "compact", "retention.ms": "5000"}
    said = log("topic", "alter", name, "--config", "retention.ms=6000", "--unset", "cleanup.policy")
    assert (said.code, said.out) == (0, f"altered topic {name}\n"), said.err
    described_when(log, name, lambda found: found["config"] == {"retention.ms": "6000"})
    assert "retention.ms=6000" in log("topic", "describe", name).out


def test_partitions_are_added_and_never_taken_away(log: Penstock, topic: str) -> None:
    assert log("topic", "alter", topic, "--partitions", 3).code == 0
    described_when(log, topic, lambda found: len(found["partitions"]) == 3)
    said = log("topic", "alter", topic, "--partitions", 2)
    assert (said.code, said.err.splitlines()[0]) == (2, f"BrokerRefused: topic '{topic}' has 3 partitions already")


def test_a_deleted_topic_is_gone(log: Penstock, topic: str) -> None:
    assert log("topic", "delete", topic).out == f"deleted topic {topic}\n"
    deadline = time.monotonic() + 30
    while log("topic", "describe", topic).code == 0:
        assert time.monotonic() < deadline
    assert log("topic", "delete", topic).err.startswith(f"UnknownTopic: there is no topic '{topic}' at ")


@ours_alone
@pytest.mark.parametrize("command", [["topic", "describe"], ["topic", "delete"], ["consume"], ["produce"]])
def test_an_unknown_topic_is_refused_with_those_that_are_there(log: Penstock, topic: str, command: list[str]) -> None:
    said = log(*command, f"{topic}x")
    assert said.code == 2
    assert said.err.startswith(f"UnknownTopic: there is no topic '{topic}x' at ")
    assert "did you mean 'cli-" in said.err
    assert (f"\n  create it: penstock topic create {topic}x\n" in said.err) == (command[0] != "topic")


@ours_alone
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (["create", "TOPIC"], "exists"),
        (["create", "no/name"], "BrokerRefused: "),
        (["create", "new", "--config", "retention.ms=soon"], "BrokerRefused: "),
        (["create", "new", "--config", "retention.ms"], "'retention.ms' is not KEY=VALUE"),
        (["alter", "TOPIC", "--config", "no.such=1"], "BrokerRefused: "),
        (["create", "new", "--partitions", "10001"], "a topic has 1 to 10000 partitions, not 10001"),
        (
            ["create", "new", "--partitions", "1000000"],
            "UnknownSetting: topic 'new' cannot have 1,000,000 partitions: ",
        ),
        (["alter", "TOPIC", "--partitions", "10001"], "can get 3 to 10000 partitions, not 10001"),
        (["alter", "TOPIC", "--partitions", "1000000"], "cannot have 1,000,000 partitions: "),
        (["alter", "TOPIC"], "nothing to alter\n  pass --partitions N"),
    ],
)
def test_a_wrong_wish_exits_with_2_and_says_why(log: Penstock, topic: str, wrong: list[str], expected: str) -> None:
    said = log("topic", *(topic if each == "TOPIC" else each for each in wrong))
    assert said.code == 2
    assert expected in said.err


def test_where_no_broker_answers_the_error_says_what_to_do_and_librdkafka_says_nothing() -> None:
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "penstock.cli", "topic", "list", "--broker", address]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    first, cause, hint = said.stderr.splitlines()
    assert first == f"NoBroker: no broker answers at {address}"
    assert "Connection refused" in cause
    assert hint == "  start one with `penstock log serve`, or pass its address: --broker HOST:PORT"


def test_the_address_comes_from_the_option_or_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)
    assert read_access().servers == "127.0.0.1:9092"
    Path("penstock.toml").write_text('[settings]\nlog = "file:1"\n')
    assert read_access().servers == "file:1"
    monkeypatch.setenv("PENSTOCK_LOG", "variable:1")
    assert read_access().servers == "variable:1"
    assert read_access(broker="option:1").servers == "option:1"


def test_a_user_needs_a_password_and_it_is_never_shown(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_PASSWORD", raising=False)
    said = penstock("topic", "list", "--user", "me")
    assert (said.code, said.err) == (
        2,
        "UnknownSetting: user 'me' has no password\n  set PENSTOCK_PASSWORD, or add --password\n",
    )
    monkeypatch.setenv("PENSTOCK_PASSWORD", "s3cret")
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    said = penstock("topic", "list", "--user", "me", "--broker", f"127.0.0.1:{free_port()}")
    assert said.code == 1
    assert "s3cret" not in said.err + penstock("topic", "list", "--help").out
    assert "s3cret" not in repr(read_access("a:1", "me", "s3cret"))


def test_a_login_is_handed_to_librdkafka() -> None:
    plain = read_access("a:1").config()
    assert plain["security.protocol"] == "PLAINTEXT"
    assert not [key for key in plain if key.startswith(("sasl", "ssl"))]
    safe = read_access("a:1", "me", "pass", "SCRAM-SHA-512", tls=True).config()
    assert (safe["security.protocol"], safe["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    trusting = read_access("a:1", ca=Path("ca.pem")).config()
    assert (trusting["security.protocol"], trusting["ssl.ca.location"]) == ("SSL", "ca.pem")


def test_options_win_over_the_url_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "kafka://ada:s3cr%3Ft@a:1?mechanism=SCRAM-SHA-256&tls=true&ca=ca.pem"
    monkeypatch.setenv("PENSTOCK_LOG", url)
    told = read_access().config()
    assert (told["bootstrap.servers"], told["security.protocol"]) == ("a:1", "SASL_SSL")
    assert (told["sasl.username"], told["sasl.password"]) == ("ada", "s3cr?t")
    assert (told["sasl.mechanism"], told["ssl.ca.location"]) == ("SCRAM-SHA-256", "ca.pem")
    other = read_access(user="bob", password="pass", mechanism="PLAIN", ca=Path("other.pem")).config()
    assert (other["sasl.username"], other["sasl.password"], other["sasl.mechanism"]) == ("bob", "pass", "PLAIN")
    assert other["ssl.ca.location"] == "other.pem"
    assert "sasl.username" not in read_access("b:1").config()
    with pytest.raises(UnknownSetting, match="user 'bob' has no password"):
        read_access(user="bob")


@pytest.mark.parametrize(
    "address",
    [
        "kafka://ada:s3cret@127.0.0.1:PORT",
        "ada:s3cret@127.0.0.1:PORT",
        "kafka://ada:s3cret@127.0.0.1:PORT?mechanism=ROT13",
        "kafka://ada:s3cret@127.0.0.1:PORT/topic",
        "http://ada:s3cret@127.0.0.1:PORT",
        "kafka://ada:x?s3cret@127.0.0.1:PORT",
        "kafka://ada:x?y=s3cret@127.0.0.1:PORT",
        "kafka://ada:x/s3cret@127.0.0.1:PORT?tsl=true",
    ],
)
@pytest.mark.parametrize("where", ["variable", "option"])
def test_a_password_in_the_address_of_the_log_is_never_shown(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, address: str, where: str
) -> None:
    monkeypatch.delenv("PENSTOCK_PASSWORD", raising=False)
    address = address.replace("PORT", str(free_port()))
    if where == "variable":
        monkeypatch.setenv("PENSTOCK_LOG", address)
    said = penstock("topic", "list", *(["--broker", address] if where == "option" else []))
    assert said.code in (1, 2)
    assert said.err.startswith(("NoBroker: no broker answers at 127.0.0.1:", "BadValue: "))
    assert "s3cret" not in said.err + said.out


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", None])
def test_who_is_no_broker_is_called_so(penstock: Penstock, answer: bytes | None) -> None:
    """One says something else, the other takes no connection at all."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as waiting:
        address = listener.getsockname()
        if answer is None:
            for _ in range(4):
                queued = waiting.enter_context(socket.socket())
                queued.setblocking(False)
                queued.connect_ex(address)
        else:
            Thread(target=_answer_all, args=(listener, answer), daemon=True).start()
        said = penstock("topic", "list", "--broker", f"127.0.0.1:{address[1]}")
        if answer is not None:
            listener.shutdown(socket.SHUT_RDWR)
    assert (said.code, said.err.splitlines()[0]) == (1, f"NoBroker: no broker answers at 127.0.0.1:{address[1]}")


def _answer_all(listener: socket.socket, answer: bytes) -> None:
    with suppress(OSError):
        while True:
            with listener.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(answer)


@pytest.fixture
def guarded(penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A log that wants a login, with the super user `me`."""
    monkeypatch.setenv("PENSTOCK_PASSWORD", "s3cret")
    assert penstock("log", "user", "add", "me", "--super", "--data", tmp_path / "data").code == 0
    serve = [sys.executable, "-m", "penstock.cli", "log", "serve", "--login", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*serve, "--data", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().split()[-1]
        server.terminate()


def test_a_log_that_wants_a_login_lets_in_who_has_the_password(
    penstock: Penstock, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert penstock("topic", "create", "mine", "--broker", guarded, "--user", "me").code == 0
    scram = ["--user", "me", "--mechanism", "SCRAM-SHA-512"]
    assert "mine" in penstock("topic", "list", "--broker", guarded, *scram).out
    assert "mine" in penstock("topic", "list", "--broker", f"kafka://me:s3cret@{guarded}?mechanism=SCRAM-SHA-256").out
    nobody = penstock("topic", "list", "--broker", guarded)
    assert (nobody.code, nobody.err.splitlines()[0]) == (2, f"BrokerRefused: {guarded} closes the connection")
    monkeypatch.setenv("PENSTOCK_PASSWORD", "wr0ng")
    said = penstock("topic", "list", "--broker", guarded, *scram)
    assert said.code == 2
    assert said.err.startswith(f"BrokerRefused: {guarded} refused the connection: ")
    assert "wr0ng" not in said.err


def test_help_does_not_load_librdkafka() -> None:
    commands = "from penstock.cli import consume, group, produce, topic"
    code = f"import sys; {commands}; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/nope"])
def test_a_data_folder_that_cannot_be_used_is_refused(penstock: Penstock, place: str) -> None:
    Path("a-file").touch()
    said = penstock("log", "serve", "--listen", "127.0.0.1:0", "--data", place)
    assert said.code == 2
    first, hint = said.err.splitlines()
    assert first.startswith(f"SettingsError: cannot use the data folder {place}: ")
    assert hint == "  give a folder that this user may write to: --data DIR"
